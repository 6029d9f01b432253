"""Many members of an ensemble trained at once: seeds, remedies and settings as one more dimension of every tensor.

Read ``members`` first (who is trained together), then ``block`` (how many at a time) and ``loop``
(epochs, curves, early ends). ``problem`` says what an engine must know and refuses what it cannot
do. ``engine`` is the interface of the three engines: ``dense`` for stacks of linear layers,
``convolutional`` for stacks with ``patches`` and ``pooled_patches``, ``general`` for any module
through ``torch.func``. ``layers`` takes a module apart; ``parameters`` keeps all weights in one
buffer; ``losses``, ``optimizers``, ``batches``, ``images`` and ``remedies`` are the pieces that the
engines share.
"""
