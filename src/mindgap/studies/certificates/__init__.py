"""How tight certificates are, and how often they hold where the risk is known."""
