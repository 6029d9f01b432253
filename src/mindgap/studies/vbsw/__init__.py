"""Tables and figures of Variance Based Samples Weighting (VBSW), and when it helps."""
