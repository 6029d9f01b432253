"""The race of ``improve``: arms, plan, search on validation data, and the test of what is left."""
