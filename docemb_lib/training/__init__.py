"""Training a student: batches of packed documents, and the objective inside a `transformers.Trainer`.

Documents reach it as token ids in an Arrow file; checkpoints, monitoring and several processes are its concern.
`distillation` trains on what teachers say of documents, `simde` on pairs of texts made of them.
"""

from docemb_lib.training.checkpoints import remove_checkpoints
from docemb_lib.training.documents import TokenFile, TrainingDocuments, write_tokens
from docemb_lib.training.memory import precision_of
from docemb_lib.training.monitor import validate
from docemb_lib.training.pairs import PairedDocuments, encode_sentences
from docemb_lib.training.run import History, train_objective
from docemb_lib.training.simde import Taught, train_on_pairs

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
