"""Training a student: batches of packed documents, and the objective inside a `transformers.Trainer`."""

from docemb_lib.training.batches import TrainingDocuments
from docemb_lib.training.trainer import History, remove_checkpoints, train_objective, uses_bf16, validate

__all__ = ["History", "TrainingDocuments", "remove_checkpoints", "train_objective", "uses_bf16", "validate"]
