"""Training a student: an objective and packed documents inside a `transformers.Trainer`."""

CHECKPOINTS = "checkpoints"  # their folder, in that of the run
