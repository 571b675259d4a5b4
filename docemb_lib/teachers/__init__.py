"""The frozen teachers.

`SBERT` is structural; `ParagraphVector`, `Compound` and `LSA` are contextual. Importing
this package loads neither torch nor gensim.
"""

from docemb_lib.teachers.lsa import LSA
from docemb_lib.teachers.paragraph_vector import Compound, ParagraphVector
from docemb_lib.teachers.sbert import SBERT
from docemb_lib.teachers.teacher import Teacher
from docemb_lib.teachers.words import Words, preprocess, write_words

__all__ = [
    "LSA",
    "SBERT",
    "Compound",
    "ParagraphVector",
    "Teacher",
    "Words",
    "preprocess",
    "write_words",
]
