"""Training a student: batches of packed documents, and the objective inside a `transformers.Trainer`.

Documents reach it as token ids in an Arrow file; checkpoints, monitoring and several processes are its concern.
"""

from docemb_lib.training.checkpoints import remove_checkpoints
from docemb_lib.training.distillation import History, train_objective
from docemb_lib.training.documents import TrainingDocuments
from docemb_lib.training.precision import precision_of
from docemb_lib.training.tokens import TokenFile, write_tokens
from docemb_lib.training.validation import validate

__all__ = [
    "History",
    "TokenFile",
    "TrainingDocuments",
    "precision_of",
    "remove_checkpoints",
    "train_objective",
    "validate",
    "write_tokens",
]
