"""Every measure of the catalog, where its value is known to mean nothing, or must not change."""
