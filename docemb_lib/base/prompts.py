"""Prompts: what an encoder wants before a text, one before a query and one before a document."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class Query(str):
    """A text that looks for documents, which an encoder reads after its prompt of queries."""


class Prompts(NamedTuple):
    """The prompts of an encoder. Where that of queries is empty, documents' stands before them."""

    document: str = ""
    query: str = ""

    @classmethod
    def among(cls, settings: Mapping[str, Any]) -> Self:
        """Return the prompts "document", or else the default one, and "query".

        settings: a sentence-transformers model has them as attributes, its folder in a file.
        """
        named = settings.get("prompts") or {}
        document = named.get("document") or named.get(settings.get("default_prompt_name"))
        return cls(document or "", named.get("query") or "")

    def of(self, text: str) -> str:
        """Return what stands before a text."""
        return self.query or self.document if isinstance(text, Query) else self.document


NO_PROMPTS = Prompts()
