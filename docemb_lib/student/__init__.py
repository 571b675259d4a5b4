"""The student: a long encoder over packed documents, saved as a sentence-transformers folder."""

from docemb_lib.base.prompts import Query
from docemb_lib.packed.packing import PackedBatch, pack, token_batches
from docemb_lib.student.loading import count_tokens
from docemb_lib.student.student import Student

__all__ = ["PackedBatch", "Query", "Student", "count_tokens", "pack", "token_batches"]
