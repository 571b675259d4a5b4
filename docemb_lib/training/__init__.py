"""Training a student: an objective and packed documents inside a `transformers.Trainer`."""

# Names of files, which displays read without torch.
CHECKPOINTS = "checkpoints"  # in the folder of the run
LOG = "log.jsonl"  # in the folder of the checkpoints, see `trainer.Log`
