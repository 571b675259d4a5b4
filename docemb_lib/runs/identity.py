"""What identifies a run: its notebook, its parameters and all that its results depend on."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, Self

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.files import fingerprint_of
from docemb_lib.base.hardware import asked_precision
from docemb_lib.corpus.sources import source_inputs
from docemb_lib.evaluation.catalogue import task_fingerprint
from docemb_lib.runs.store import VERSION, installed_versions
from docemb_lib.settings.files import Sources, load_class, sources_of
from docemb_lib.settings.labels import student_name, typeset
from docemb_lib.settings.notebooks import REGISTRY, Notebook, notebook_named
from docemb_lib.settings.parameters import SINGLE, Parameters, members_of
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import (
    CONTEXTUAL_LOSSES,
    NOT_IN_FINGERPRINT,
    ParagraphVectorSettings,
    Training,
)

PV_NAMES = ("DBOW", "DM", "PV")  # contextual teachers made of Paragraph Vectors
UNCOUNTED = ("docemb", "python")  # versions that change no result
# Parameters that count together: of the contextual loss, of pairs of texts.
CONTEXTUAL = (
    "contextual_teacher",
    "contextual_loss",
    "student_projection",
    "contextual_projection",
)
PAIRS = ("pairs", "pair_temperature", "mlm_weight")
IN_ASCII = str.maketrans(
    {"λ": "lam", "γ": "gamma", "τ": "tau", "δ": "delta", "β": "beta", "%": "pct"}
)


class RunIdentity:
    """One run of one notebook: the notebook, and a profile with the parameters of the run.

    Raises InputError for an unknown notebook.
    """

    def __init__(self, notebook: str, profile: Profile) -> None:
        self.notebook = notebook_named(notebook)
        self.profile = profile

    @classmethod
    def of(cls, notebook: str, profile: Profile, **parameters: Any) -> Self:
        """The run of `notebook` with these parameters and the profile's values for all others.

        Raises InputError for a parameter that the notebook does not take, or a value that is not
        allowed.
        """
        return cls(notebook, profile.for_notebook(notebook, **parameters))

    @classmethod
    def bare(cls, notebook: str, profile: Profile, **parameters: Any) -> Self:
        """The run with these parameters, and docemb's defaults instead of the profile's values."""
        defaults = {"parameters": Parameters(), "notebooks": {}}
        return cls.of(notebook, profile.model_copy(update=defaults), **parameters)

    @property
    def registered(self) -> Notebook:
        """The notebook in the registry, which says what a run of it does."""
        return REGISTRY[self.notebook]

    @property
    def parameters(self) -> dict[str, object]:
        """The values of all parameters that the notebook takes."""
        return _values(self.profile.parameters, self.registered.values)

    @property
    def trains(self) -> bool:
        """Whether the run trains a student."""
        return self.registered.trains

    @property
    def self_supervised(self) -> bool:
        """Whether the student learns from pairs of texts."""
        return self.registered.self_supervised

    @property
    def taught(self) -> bool:
        """Whether the student learns from teachers."""
        return self.trains and not self.self_supervised

    @property
    def is_final(self) -> bool:
        """Whether the run is scored on test splits."""
        return self.registered.final

    @property
    def has_words(self) -> bool:
        """Whether the student gets a half of words: notebook and profile must give it one."""
        return self.profile.student.words > 0 and self.registered.has_words

    @property
    def in_thesis_form(self) -> bool:
        """Whether the student, if the run trains one, has the form of the thesis' students.

        It is the mean over all tokens without a half of words, and learns from a structural teacher
        that truncates: over chunks, the mask would hide nothing. Other students with the parameters
        of one in the thesis do not carry its name or its value.
        """
        if not self.trains:
            return True
        profile = self.profile
        truncates = profile.structural_teacher.long == "truncate"
        return profile.student.pooling == "mean" and truncates and not self.has_words

    @property
    def training(self) -> Training:
        return self.profile.simde.training if self.self_supervised else self.profile.training

    @property
    def roles(self) -> set[str]:
        """The roles, structural and contextual, that the parameters name a teacher for."""
        return self.profile.parameters.roles

    @cached_property
    def counting(self) -> dict[str, Any]:
        """The parameters that the results of the run depend on, with their values.

        A parameter of a loss, teacher or model that the run does not use is left out. So two runs
        that differ only in the margin `gamma` are one run if their loss has no margin.
        """
        p = self.profile.parameters
        names = ["seed"]
        if not self.trains:
            # The labels of a compound name all parameters of its members.
            unused = SINGLE if p.compound else ("compound",)
            names += [name for name in self.registered.parameters if name not in unused]
        if self.trains:
            names.append("documents")
        if self.self_supervised:
            names += PAIRS
        counting = _values(p, names)
        if self.taught:
            counting |= objective_settings(p)
        if self.sources:
            counting["sources"] = self.sources
        return counting

    @cached_property
    def counted(self) -> str:
        """The hash of `counting`, of which the key and the student's artefact are made."""
        return fingerprint_of(self.counting)

    @cached_property
    def sources(self) -> Sources:
        """The file that defines the run's loss of one's own, see `user_code.sources_of`.

        It is empty for losses of docemb's, and where the code is gone: then the run cannot be
        executed, but a record of it can be read.
        """
        if self.own_loss is not None:
            with suppress(InputError):
                return sources_of(load_class(self.own_loss))
        return {}

    @property
    def own_loss(self) -> str | None:
        """The import path of the run's loss of one's own; None for a loss of docemb's."""
        loss = self.profile.parameters.structural_loss
        return loss if self.taught and loss is not None and ":" in loss else None

    def same_but(self, *names: str) -> str:
        """A text that two runs share if their `counting` parameters differ in `names` at most.

        Notebook and setting do not enter the text, because runs of different notebooks may train
        the same student, and because a run is compared with those of the thesis, which has a
        profile of its own.
        """
        return self.only(*(name for name in self.counting if name not in names))

    def only(self, *names: str) -> str:
        """A text that two runs share if the parameters `names` are equal, as far as they count."""
        counting = {name: self.counting[name] for name in names if name in self.counting}
        return json.dumps(counting, sort_keys=True)

    @property
    def cell(self) -> str:
        """A text that two runs share if their results stand in one cell of a table of the thesis.

        The thesis has one seed and one number of documents, so runs of all seeds and numbers of
        documents share the cell.
        """
        return self.same_but("seed", "documents")

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All that results depend on except for notebook and parameters, as JSON.

        They are computed once for all runs of a profile, because that reads many files.
        """
        determined_by = (self.sections, self.self_supervised, asked_precision())
        return self.profile.once(determined_by, self._read_inputs)

    @cached_property
    def sections(self) -> str:
        """All sections of the profile but parameters and plan, as JSON; no file is read."""
        return self.profile.model_dump_json(exclude={"parameters", "notebooks", "plan"})

    def _read_inputs(self) -> dict[str, Any]:
        """Compute `inputs`. The section `simde` counts in self-supervised runs only."""
        profile = self.profile
        evaluation = profile.evaluation
        # Corpora, tasks and models enter by the fingerprints of their files below. The plan and the
        # parameters do not count.
        excluded: dict[str, Any] = {
            **dict.fromkeys(("plan", "parameters", "notebooks", "corpus"), True),
            "contextual_teachers": {"corpus"},
            "training": NOT_IN_FINGERPRINT,
            "evaluation": {"own_tasks", "benchmarks"},
            "student": {"model"},  # a folder may move
            "structural_teacher": {"model"},
            "simde": {"training": NOT_IN_FINGERPRINT} if self.self_supervised else True,
        }
        tasks = (*evaluation.tasks, *evaluation.sweep_tasks)
        versions = installed_versions()
        inputs: dict[str, object] = {
            "version": VERSION,
            "profile": profile.model_dump(mode="json", exclude=excluded),
            "texts": {str(n): source_inputs(s) for n, s in enumerate(profile.text_sources, 1)},
            "task": {name: task_fingerprint(name, evaluation) for name in tasks},
            "model": [*map(pretrained.fingerprint, profile.models)],
            "versions": {name: versions[name] for name in versions if name not in UNCOUNTED},
        }
        # A run in the precision that the machine chooses is recognised on any machine.
        precision = asked_precision()
        if precision != "auto":
            inputs["precision"] = precision
        return json.loads(json.dumps(inputs, default=str))

    @cached_property
    def setting(self) -> str:
        """A hash of `inputs`. Runs of one setting are comparable."""
        return fingerprint_of(self.inputs)

    @property
    def paragraph_vectors(self) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors that the run trains or loads.

        Settings that no parameter gives are those of the profile's DM or DBOW.
        """
        p = self.profile.parameters
        settings = self.profile.contextual_teachers
        if self.registered.fits_paragraph_vector:
            members = members_of(p.compound) if p.compound else [_values(p, SINGLE)]
            return [
                (settings.DM if member["dm"] else settings.DBOW).model_copy(update=member)
                for member in members
            ]
        names = PV_NAMES if self.registered.beside_contextual else ()
        return [member for name in names for member in settings.members(name)]

    @property
    def name(self) -> str:
        """The run in figures, tables and the log: the name of its student, or its label."""
        if not self.trains:
            return typeset(self.label)
        return student_name(self.profile.parameters, from_pairs=self.self_supervised)

    @cached_property
    def label(self) -> str:
        """What tells the run from others of its notebook; the name of its student comes first."""
        return self.registered.label(self.profile.parameters)

    @cached_property
    def slug(self) -> str:
        """The label as one path component, with the profile and the seed."""
        parts = [self.profile.name, self.label, f"seed{self.profile.parameters.seed}"]
        slug = re.sub(r"([^\w.=+]|_)+", "-", "-".join(parts).translate(IN_ASCII)).strip("-")
        if len(slug.encode()) <= 200:
            return slug
        # Names of files have a limit in bytes.
        beginning = slug.encode()[:180].decode(errors="ignore")
        return f"{beginning}-{self.counted}"


def objective_settings(p: Parameters) -> dict[str, object]:
    """The parameters of the losses of a student that learns from teachers, with their values.

    A parameter is left out where its loss, teacher or weighting is not in use.
    """
    names: list[str] = []
    if p.structural_loss is not None:
        names += ["structural_loss", "max_structural_len"]
    if p.structural_loss == "max-margin":
        names += ["distance", "gamma"]
    if p.structural_loss == "contrastive":
        names.append("temperature")
    if p.contextual_teacher is not None:
        names += CONTEXTUAL
        names += CONTEXTUAL_LOSSES[p.contextual_loss].parameters
    if len(p.roles) == 2:
        names += ["lam", "lam_by_length", "weighting"]
    return _values(p, names)


def _values(p: Parameters, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(p, name) for name in names}
