"""Tables and figures of Variance Based Samples Weighting, and when it helps."""
