"""The classification tasks of the SimDE paper (Table 1) from their published files.

| task              | asks                                     | from                                           |
|-------------------|------------------------------------------|------------------------------------------------|
| `fakenews`        | what kind of site is the article from?   | the CSV of several27/FakeNewsCorpus            |
| `20news`          | which newsgroup is the post from?        | a hub, or the folders of 20news-bydate         |
| `arxiv-abstracts` | which of 38 archives is the abstract in? | arXiv's metadata as on Kaggle, JSON lines      |
| `nyt`             | what is the article about?               | NYT-Small of X-Class, in LINES                 |
| `bbcnews`         | which section is the article from?       | a hub, the folders of bbc-fulltext, or its CSV |

The paper's document matching on AAN is the benchmark task `aan`. It names no splits: where the files name none, a fifth
of each class is drawn for test and as much for validation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from docemb_lib.corpus.rows import Row, file_format, read_rows, read_text
from docemb_lib.corpus.sentences import PARTS, Word, split_sentences, tag_words
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import hub_splits
from docemb_lib.evaluation.readers import (
    NO_SPLIT,
    Example,
    draw_splits,
    labelled,
    read_class_folders,
    read_example,
    refuse_blank,
    split_in,
    split_of,
    text_files,
)
from docemb_lib.evaluation.tasks import SPLITS, Classification
from docemb_lib.progress import progress

if TYPE_CHECKING:
    from torch import Tensor

    from docemb_lib.student import Student


# ---- the classification tasks of the SimDE paper


logger = logging.getLogger(__name__)

SHARE = 0.2  # of each class drawn for test, and as much for validation
LINES = ("dataset.txt", "labels.txt", "classes.txt")  # documents; numbers of their classes; names of these


class Published(NamedTuple):
    """What the paper and the published files say of a data set."""

    size: int  # documents, Table 1
    text: tuple[str, ...] = ("text",)  # the names that the field has in the different files
    label: tuple[str, ...] = ("label",)
    hub: str | None = None


SIMDE_TASKS: Mapping[str, Published] = {
    "fakenews": Published(8_558_957, text=("content",), label=("type",)),
    "20news": Published(18_846, label=("label_text", "label"), hub="SetFit/20_newsgroups"),
    "arxiv-abstracts": Published(2_162_833, text=("abstract",), label=("categories",)),
    "nyt": Published(13_081),
    "bbcnews": Published(2_225, label=("label_text", "category", "label"), hub="SetFit/bbc-news"),
}


def simde_task(name: str, source: str | None = None) -> Classification:
    """A task of the paper by name.

    source: a data file, a folder in any of the layouts of these data sets, or the id of a data set on a hub; None: its
    own there. Rows without a class or a text are left out, and how many is logged; so is another size than the paper's.
    Raises InputError, naming file and row.
    """
    source = source or SIMDE_TASKS[name].hub
    if source is None:
        raise InputError(f"benchmark task {name}: stands on no hub; name the file or folder that holds it")
    place = Path(source)
    if place.is_dir() and (place / LINES[0]).is_file():
        splits = {NO_SPLIT: list(_parallel_lines(place))}
    elif place.is_dir() and not _data_files(place):
        splits = read_class_folders(place)
    else:
        splits = _by_split(name, _rows(source))
    if set(splits) == {NO_SPLIT}:
        splits = draw_splits(splits[NO_SPLIT], share=SHARE, seed=0, where=source)
    if NO_SPLIT in splits:
        raise InputError(f"{source}: some rows name their split and some do not; name it in all of them or in none")
    task = Classification(name, {split: labelled(splits[split]) for split in SPLITS if split in splits})
    size = sum(map(len, splits.values()))
    if size != SIMDE_TASKS[name].size:
        logger.warning(
            "task %s: %d documents, the paper has %d; scores do not compare", name, size, SIMDE_TASKS[name].size
        )
    return task


def archive_of(categories: str) -> str:
    """The archive of a paper's first category, math of `math.CO cs.DM`: with the closed ones there are Table 1's 38."""
    return categories.split()[0].split(".")[0]


def _rows(source: str) -> Iterator[tuple[str, Row]]:
    """Every row, and the split that its file names."""
    place = Path(source)
    if place.is_dir():
        files = {file: split_in(file.relative_to(place).as_posix()) for file in _data_files(place)}
        named = {file: split for file, split in files.items() if split}  # beside them may stand all of it in one file
        for file, split in (named or files).items():
            yield from ((split, row) for row in read_rows(file))
    elif place.is_file():
        yield from ((NO_SPLIT, row) for row in read_rows(place))
    elif place.is_absolute() or source.startswith("."):
        raise InputError(f"{source}: no such file or folder; name the one that holds the published data")
    else:
        for split, rows in hub_splits(source, None).items():
            yield from ((split, row) for row in rows)


def _by_split(name: str, rows: Iterable[tuple[str, Row]]) -> dict[str, list[Example]]:
    published = SIMDE_TASKS[name]
    splits: dict[str, list[Example]] = {}
    left_out = 0
    for split, row in rows:
        text, label = _field(row, published.text), _field(row, published.label)
        if any(field in row.fields and _is_blank(row.fields[field]) for field in (text, label)):
            left_out += 1
            continue
        example = read_example(row, text_fields=[text], label_field=label)
        if name == "arxiv-abstracts":
            example = example._replace(label=archive_of(example.label))
        own = split_of(row, "split") if "split" in row.fields else split
        splits.setdefault(own, []).append(example)
    if left_out:
        logger.warning("task %s: %d rows without a class or a text are left out", name, left_out)
    if not splits:
        raise InputError(
            f"task {name}: holds no example; give rows with the fields {published.text[0]} and {published.label[0]}"
        )
    return splits


def _field(row: Row, names: Sequence[str]) -> str:
    """The first of the names that the row has; where it has none, the first one."""
    return next((name for name in names if name in row.fields), names[0])


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _parallel_lines(folder: Path) -> Iterator[Example]:
    """The documents of a folder with LINES: what stands in the same line belongs together."""
    documents, labels, classes = (read_text(folder / name).removesuffix("\n").split("\n") for name in LINES)
    for number, (text, label) in enumerate(zip_longest(documents, labels), start=1):
        where = f"{folder}, line {number}"
        if text is None or label is None:
            raise InputError(
                f"{where}: {LINES[0]} has {len(documents)} lines, {LINES[1]} {len(labels)}; make them equal"
            )
        if not label.strip().isdecimal() or int(label) >= len(classes):
            raise InputError(
                f"{where}: the label is {label!r}, expected the number of a class from 0 to {len(classes) - 1}"
            )
        yield refuse_blank(Example((text,), classes[int(label)].strip()), where=where)


def _data_files(folder: Path) -> list[Path]:
    return [file for file in text_files(folder) if file_format(file)]


# ---- how much a document repeats itself


LIMITS = (0, 50, 100, 200, 300)  # words between which Table 4 divides documents
BINS = ("0-50", "51-100", "101-200", "201-300", "over 300")
ALL = "All"
SHORTEST = 3  # words of a sentence that is compared: headings, dates and signatures are similar without saying anything

T = TypeVar("T")


def redundancy(texts: Sequence[str]) -> pd.DataFrame:
    """A row per text: words (divided by white space), content (nouns and verbs), distinct ones, and redundancy.

    redundancy is content / distinct: 1 where nothing comes twice, NaN where there is neither a noun nor a verb. Words
    are told apart by their forms, whatever their capitals (the paper does not say). English.
    """
    rows = []
    for text in progress(texts, desc="nouns and verbs", unit="documents"):
        content = [word.text.lower() for word in tag_words(text) if word.part in {"noun", "verb"}]
        rows.append((len(text.split()), len(content), len(set(content))))
    documents = pd.DataFrame(rows, columns=["words", "content", "distinct"])
    documents["redundancy"] = documents["content"] / documents["distinct"]
    return documents


def redundancy_by_length(documents: pd.DataFrame) -> pd.DataFrame:
    """As a row of Table 4: the mean redundancy of the documents of each length in words, and how many they are.

    documents: what `redundancy` gives; those without a noun or verb do not count. Index words: BINS and "All".
    """
    counted = documents.dropna(subset="redundancy")
    if counted.empty:
        raise InputError(f"redundancy: none of the {len(documents)} documents has a noun or a verb; is it English?")
    place = pd.cut(counted["words"], [*LIMITS, np.inf], labels=list(BINS))
    table = counted.groupby(place, observed=False)["redundancy"].agg(["mean", "size"])
    table = table.set_axis(["redundancy", "documents"], axis="columns")
    table.index = pd.Index(table.index.astype(str), name="words")
    table.loc[ALL] = [counted["redundancy"].mean(), len(counted)]
    return table.astype({"documents": int})


def sentence_similarity(
    texts: Sequence[str],
    embed: Callable[[list[str]], np.ndarray],
    *,
    pairs: int = 1000,
    seed: int = 0,
    language: str = "en",
) -> pd.DataFrame:
    """Cosines of sentences: a row per pair, kind "inside" (two of one document) or "across" (of two documents).

    Of each kind as many as `pairs`, drawn by the seed: documents evenly, then a sentence of each, so that a long
    document counts no more than a short one. embed: N sentences to (N, D). Sentences of fewer than `SHORTEST` words do
    not count, nor do documents of fewer than two different ones. Raises InputError for fewer than two documents.
    """
    sentences = [found for text in texts if len(found := _sentences(text, language)) > 1]
    if len(sentences) < 2:
        raise InputError(
            f"sentence_similarity: {len(sentences)} of {len(texts)} documents have two sentences or more, expected two"
        )
    rng = np.random.default_rng(seed)
    drawn: list[tuple[str, str]] = []
    for _ in range(pairs):
        inside = sentences[rng.integers(len(sentences))]
        drawn.append(_two(inside, rng))
        one, other = _two(sentences, rng)
        drawn.append((one[rng.integers(len(one))], other[rng.integers(len(other))]))
    unique = list(dict.fromkeys(sentence for pair in drawn for sentence in pair))
    embeddings = np.asarray(embed(unique), dtype=np.float64)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    row_of = {sentence: row for row, sentence in enumerate(unique)}
    first, second = (embeddings[[row_of[pair[side]] for pair in drawn]] for side in (0, 1))
    kinds = ["inside", "across"] * pairs
    return pd.DataFrame({"kind": kinds, "cosine": (first * second).sum(axis=1)})


def _sentences(text: str, language: str) -> list[str]:
    found = [" ".join(sentence.split()) for sentence in split_sentences(text, language=language)]
    return list(dict.fromkeys(sentence for sentence in found if len(sentence.split()) >= SHORTEST))


def _two(items: Sequence[T], rng: np.random.Generator) -> tuple[T, T]:
    """Two different ones, each couple as probable as any."""
    one, other = rng.choice(len(items), size=2, replace=False)
    return items[one], items[other]


# ---- which words a document's embedding attends to


def attention_by_part(student: Student, texts: Sequence[str]) -> pd.DataFrame:
    """A row per document and part of speech: columns document, part, words, attention and relative.

    attention: what one such word gets in the last layer, mean over heads, from the tokens that are pooled: the first
    one, as in the paper, or the mean over all. relative: divided by what a word of the document gets in the mean, so
    that 1 is as much as any word, whatever the length. English; what the student does not read does not count.
    Raises InputError for a student that gives no attentions, and where no text has a word.
    """
    rows = []
    for number, text in enumerate(progress(texts, desc="attention", unit="documents")):
        weights, offsets = token_attention(student, text)
        words = tag_words(text[: offsets.max()])  # what the student reads of it
        by_word = attention_of_words(weights, offsets, words)
        read = ~np.isnan(by_word)
        parts = np.array([word.part for word in words], dtype=object)
        for part in PARTS:
            own = by_word[read & (parts == part)]
            if len(own):
                rows.append((number, part, len(own), own.mean(), own.mean() / by_word[read].mean()))
    if not rows:
        raise InputError(f"attention: none of the {len(texts)} texts has a word; give documents")
    return pd.DataFrame(rows, columns=["document", "part", "words", "attention", "relative"])


def attention_of_words(weights: np.ndarray, offsets: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """What each word gets, the sum over its tokens; NaN for one without a token: (W,).

    weights: (T,); offsets: (T, 2), the characters of each token. A token belongs to the word in which its last
    character stands: its first may be the space before.
    """
    found = np.full(len(words), np.nan)
    starts = np.array([word.start for word in words], dtype=np.int64)
    for weight, (start, end) in zip(weights, offsets, strict=True):
        place = int(np.searchsorted(starts, end - 1, side="right")) - 1
        if end > start and place >= 0 and end <= words[place].end:
            found[place] = weight + (0.0 if np.isnan(found[place]) else found[place])
    return found


def token_attention(student: Student, text: str) -> tuple[np.ndarray, np.ndarray]:
    """What each token of a text gets in the last layer, (T,), and its characters in the text, (T, 2).

    Special tokens stand at the ends, with characters (0, 0); with theirs, the weights sum to 1.
    """
    import torch

    if student.config.model_type != "longformer":
        raise InputError(f"attention: a {student.config.model_type} gives none; take a student with BERT's layers")
    encoding = student.tokenizer(text, truncation=True, max_length=student.max_tokens, return_offsets_mapping=True)
    ids, offsets = encoding["input_ids"], np.array(encoding["offset_mapping"])
    T, window = len(ids), max(student.config.attention_window)
    padding = -T % window  # the stock model would do it, with a warning
    input_ids = torch.tensor([ids + [student.config.pad_token_id] * padding], device=student.device)
    is_text = (torch.arange(T + padding, device=student.device) < T)[None].long()
    is_global = torch.zeros_like(is_text)
    is_global[0, 0] = student.pooling == "cls"
    training = student.training
    student.eval()
    with torch.inference_mode():
        output = student.model(
            input_ids, attention_mask=is_text, global_attention_mask=is_global, output_attentions=True
        )
    student.train(training)
    if student.pooling == "cls":
        received = output.global_attentions[-1][0, :, :T, 0].mean(0)
    else:
        pooled = 1 if student.pooling == "first" else T
        received = _received(output.attentions[-1][0, :, :pooled].mean(0), T)
    return received.double().cpu().numpy(), offsets


def _received(local: Tensor, T: int) -> Tensor:
    """What T tokens get from Q queries in the mean: (T,). local: (Q, window + 1), whose middle is the query itself."""
    Q, width = local.shape
    half = width // 2
    around = local.new_zeros(half + T + half)
    for query, weights in enumerate(local):
        around[query : query + width] += weights
    return around[half : half + T] / Q
