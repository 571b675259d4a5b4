"""Ours against the peer, side by side in one process, as ratios: each benchmark is a module that returns a `Report`.

Nothing here needs more than torch, transformers, accelerate, NumPy and Typer, so that it runs on any borrowed machine;
only the figure needs matplotlib, Paragraph Vector gensim and joblib, heads and retrieval pandas, pydantic and
scikit-learn, retrieval faiss, and corpus datasets, pydantic and psutil.
"""

from docemb_lib.bench.corpus import bench_corpus
from docemb_lib.bench.heads import bench_heads
from docemb_lib.bench.paragraph_vector import bench_paragraph_vector
from docemb_lib.bench.report import Report, Row, write_report
from docemb_lib.bench.retrieval import bench_retrieval
from docemb_lib.bench.student import bench_student

__all__ = [
    "Report",
    "Row",
    "bench_corpus",
    "bench_heads",
    "bench_paragraph_vector",
    "bench_retrieval",
    "bench_student",
    "write_report",
]
