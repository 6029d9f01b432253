"""What several diagnoses look at: samples as rows, a reference predictor, two-sample scores."""
