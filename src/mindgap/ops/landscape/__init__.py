"""Loss landscapes: directions in weight space, losses at many points, paths between minima."""
