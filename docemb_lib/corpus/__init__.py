"""Text in, a corpus out: documents from installed documentation, local files or a hub, made into splits."""

from docemb_lib.corpus.build import build_corpus
from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs
from docemb_lib.corpus.sources import Document, hub_documents, local_documents

__all__ = ["PACKAGES", "Document", "build_corpus", "hub_documents", "installed_docs", "local_documents"]
