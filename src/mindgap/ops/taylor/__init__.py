"""How fast a function changes: the Taylor metric Df, and a bound from derivatives."""
