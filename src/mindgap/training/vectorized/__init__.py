"""Many members of an ensemble trained at once, as one more dimension of every tensor.

Read ``members`` first: who is trained together. Then read ``block``, which takes as many members as
fit into memory from new models to trained ones, and ``loop``, which runs its epochs, records curves
and handles divergence and Ctrl-C.

An engine computes the gradients. ``problem`` is what it is given, ``engine`` its interface, and
``parameters`` the one flat tensor that holds all weights. There are four engines: ``gram`` for
linear least squares, ``dense`` for chains of linear layers, ``convolutional`` (with ``images``,
``patches`` and ``pooled_patches``) for chains that begin with convolutions, and ``general`` for any
module, through ``torch.func``. They share ``batches`` and ``losses``, and the first three
``layers``, which takes a module apart. ``optimizers`` takes torch's steps on the flat tensor.
Remedies bring their own vectorized form.
"""
