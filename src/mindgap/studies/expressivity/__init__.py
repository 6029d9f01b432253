"""Expressivity: what networks can represent, by width and by depth, and what training finds of it."""
