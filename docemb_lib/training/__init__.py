"""Training a student: an objective and packed documents inside a `transformers.Trainer`."""
