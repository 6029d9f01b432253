"""Networks whose outputs cannot change much when their inputs change little."""
