"""Samples that occur twice: equal inputs, near copies, and how many of them are natural."""
