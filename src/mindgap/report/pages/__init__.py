"""Whole pages other than the report of examine: studies, certificates, weights, sampling."""
