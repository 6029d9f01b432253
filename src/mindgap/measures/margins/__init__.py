"""Margins: how far outputs are from another decision."""
