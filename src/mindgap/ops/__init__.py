"""Functions of tensors, modules and callables, one folder per topic; they know nothing of specs."""
