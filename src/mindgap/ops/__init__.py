"""Functions of tensors, modules and callables, one folder per topic, independent of specs."""
