"""Curvature: the loss as a function of one flat vector, Hessian diagonals, pacGen."""
