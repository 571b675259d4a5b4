"""The student: a Longformer over packed documents, converted from a short encoder, embedding by the mean of its tokens.

Its saved form is a plain sentence-transformers folder.
"""

from docemb_lib.student.conversion import count_tokens
from docemb_lib.student.student import Student
from docemb_lib.student.packing import PackedBatch, pack, token_batches

__all__ = ["PackedBatch", "Student", "count_tokens", "pack", "token_batches"]
