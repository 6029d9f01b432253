"""Linear regions of piecewise linear networks: exact counts on lines and planes, and bounds."""
