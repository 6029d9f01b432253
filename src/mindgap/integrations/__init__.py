"""Remedies, probes and monitors inside the training loops of Lightning, Hugging Face and skorch.

Each loop has one module. It is imported only when it is asked for, and it says which extra to
install if the loop's package is missing.
"""
