"""The gap itself, and the simplest quantities that every other measure must beat."""
