"""Terms and shrinkage that hold down weights, logits and confidence."""
