"""lipschitz: how fast outputs can change, from below and above, and what that certifies."""
