"""Batch size against the generalization gap."""
