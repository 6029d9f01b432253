"""Remedies and probes inside the training loops of Lightning, Hugging Face and skorch, one module each.

None of them is imported unless asked for, and each says which extra it needs when its package is
missing.
"""
