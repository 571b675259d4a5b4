"""Training a student: an objective and packed documents inside a `transformers.Trainer`."""

from docemb_lib.training.batches import TokenFile, TrainingDocuments, write_tokens
from docemb_lib.training.monitor import validate
from docemb_lib.training.pairs import PairedDocuments, encode_sentences, train_on_pairs
from docemb_lib.training.run import History, precision_of, train_objective
from docemb_lib.training.trainer import remove_checkpoints

__all__ = [
    "History", "PairedDocuments", "TokenFile", "TrainingDocuments", "encode_sentences", "precision_of",
    "remove_checkpoints", "train_objective", "train_on_pairs", "validate", "write_tokens",
]  # fmt: skip
