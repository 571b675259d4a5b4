"""Training a student: batches of packed documents, and the objective inside a `transformers.Trainer`.

Documents reach it as token ids in an Arrow file; checkpoints, monitoring and several processes are its concern.
`distillation` trains on what teachers say of documents, `simde` on pairs of texts made of them.
"""

from docemb_lib.training.checkpoints import remove_checkpoints
from docemb_lib.training.distillation import train_objective
from docemb_lib.training.documents import TrainingDocuments
from docemb_lib.training.halves import encode_sentences
from docemb_lib.training.pairs import PairedDocuments
from docemb_lib.training.precision import precision_of
from docemb_lib.training.running import History
from docemb_lib.training.simde import Taught, train_on_pairs
from docemb_lib.training.tokens import TokenFile, write_tokens
from docemb_lib.training.validation import validate

__all__ = [
    "History",
    "PairedDocuments",
    "Taught",
    "TokenFile",
    "TrainingDocuments",
    "encode_sentences",
    "precision_of",
    "remove_checkpoints",
    "train_objective",
    "train_on_pairs",
    "validate",
    "write_tokens",
]
