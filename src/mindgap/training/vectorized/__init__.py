"""Many members trained at once: engines that share one flat tensor of parameters and one optimizer step."""
