"""Where the text comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from docemb_lib.settings.section import Section


class HubDataset(Section):
    """A data set that `datasets.load_dataset` streams."""

    dataset: str  # hub id, local folder, or data files: a path or pattern ending in .jsonl, .csv, .tsv or .parquet
    config: str | None = None
    split: str = "train"
    text_field: str = "text"
    min_words: int | None = Field(None, ge=1)  # leave out shorter documents
    min_student_tokens: int | None = Field(None, ge=1)  # the same in tokens of the student, without special tokens


class TextSource(Section):
    """Where text comes from."""

    source: Literal["installed-docs", "local", "hub"] = "installed-docs"
    packages: list[str] | None = None  # installed-docs: which packages; None: all that docemb knows
    # local: a folder of .txt/.md files, a data file (.jsonl, .csv, .tsv, .parquet), a pattern such as news/*.jsonl.gz,
    # or a list of them, relative to this profile's own folder
    path: Path | list[Path] | None = None
    text_field: str = "text"  # local data files
    id_field: str = "id"  # local data files; where it is missing, the number of the row
    datasets: list[HubDataset] = []  # hub: equal shares of each
    # At most so many; None: all. Of a hub None has to be written: all of the first data set, as many of each other one.
    documents: int | None = Field(None, ge=1)
    # Leave out a document that shares so much with an earlier one (Jaccard index of their runs of five words); needs
    # the extra `dedup`. None: exact copies only.
    near_duplicates: float | None = Field(None, gt=0, lt=1)
    seed: int = Field(42, ge=0)  # of sampling and splitting (Section 5.1); runs of every seed share their corpus

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        if self.source == "local" and self.path is None:
            raise ValueError("path is missing: name a folder of .txt/.md files or a data file")
        if self.source == "hub" and not self.datasets:
            raise ValueError("datasets is missing: name at least one data set of the hub")
        if self.source == "hub" and "documents" not in self.model_fields_set:
            raise ValueError("documents is missing: say how many documents to take from the hub; null: all")
        return self


class Corpus(TextSource):
    """The students' text, and what of it is set apart from all training."""

    validation: int = Field(200, ge=2)  # documents of the validation split
    tasks: int = Field(200, ge=20)  # documents held out for the tasks, from all training
