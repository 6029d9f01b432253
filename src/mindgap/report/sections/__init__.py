"""Sections of the report of examine: one file is one section, its data and its figures."""
