"""RunKey: what a run is.

It gives the run's parameters, fingerprint, label and slug, and checks their combination.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import asked_precision
from docemb_lib.corpus.sources import source_fingerprint
from docemb_lib.evaluation.catalogue import task_fingerprint
from docemb_lib.settings.parameters import SINGLE, Parameters, label_of_paragraph_vector, members_of
from docemb_lib.settings.profile import (
    BESIDE_CONTEXTUAL,
    NOTEBOOKS,
    SELF_SUPERVISED,
    TRAINING,
    Profile,
    width,
)
from docemb_lib.settings.projections import check_widths
from docemb_lib.settings.sections import (
    NO_PAIRS,
    NOT_IN_FINGERPRINT,
    FurtherTeacher,
    ParagraphVectorSettings,
    Training,
)
from docemb_lib.workspace import VERSIONS, fingerprint_of, installed_versions

STRUCTURAL = (
    "structural_loss",
    "distance",
    "gamma",
    "temperature",
)  # parameters of the structural loss
CONTEXTUAL = (
    "contextual_teacher",
    "contextual_loss",
    "student_projection",
    "contextual_projection",
)
PAIRS = ("pairs", "pair_temperature", "mlm_weight")
PV_NAMES = ("DM", "DBOW", "PV")  # contextual teachers made of Paragraph Vectors
SOFT_CCA = ("delta", "beta")
PAPER = (
    Parameters()
)  # the papers' settings of pairs and of SoftCCA; a label names only what differs
IN_ASCII = str.maketrans(
    {"λ": "lam", "γ": "gamma", "τ": "tau", "δ": "delta", "β": "beta", "%": "pct"}
)


@dataclass(frozen=True, eq=False)
class RunKey:
    """One run of one notebook, a key of `NOTEBOOKS`, with the parameters of a profile, see
    `RunKey.of`.

    Example:
        >>> from docemb_lib import Profile
        >>> key = RunKey.of("05_weighting", Profile.load("tiny"), lam=0.8)
        >>> other = RunKey.of("05_weighting", Profile.load("tiny"), lam=0.2)
        >>> key.fingerprint == other.fingerprint, key.same_but("lam") == other.same_but("lam")
        (False, True)
    """

    notebook: str
    profile: Profile

    @classmethod
    def of(cls, notebook: str, profile: Profile, **parameters: Any) -> Self:
        """The run of `notebook` with these parameters and the profile's values for all others.

        Raises InputError.
        """
        return cls(notebook, profile.for_notebook(notebook, **parameters))

    @classmethod
    def bare(cls, notebook: str, profile: Profile, **parameters: Any) -> Self:
        """The run with these parameters and docemb's defaults for all others, whatever the
        profile's own are.
        """
        defaults = {"parameters": Parameters(), "notebooks": {}, "further_teachers": []}
        return cls.of(notebook, profile.model_copy(update=defaults), **parameters)

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            name: getattr(self.profile.parameters, name)
            for name in ("seed", *NOTEBOOKS[self.notebook])
        }

    @property
    def trains(self) -> bool:
        return self.notebook in TRAINING

    @property
    def self_supervised(self) -> bool:
        """Whether the student learns from pairs of texts."""
        return self.notebook in SELF_SUPERVISED

    @property
    def taught(self) -> bool:
        """Whether the student learns from teachers."""
        return self.trains and (
            not self.self_supervised or self.profile.parameters.beside_teachers is not None
        )

    @property
    def has_lexical_half(self) -> bool:
        """Whether the student gets a lexical half: that of 06_evaluation, in profiles that ask for
        one.
        """
        return self.profile.student.lexical > 0 and self.notebook == "06_evaluation"

    @property
    def training(self) -> Training:
        return self.profile.simde.training if self.self_supervised else self.profile.training

    @property
    def roles(self) -> set[str]:
        return roles_of(self.profile.parameters, self.profile.further_teachers)

    @cached_property
    def counting(self) -> dict[str, Any]:
        """The parameters that the run's results depend on.

        Parameters of an unused loss or teacher are left out.
        """
        p, names = self.profile.parameters, ["seed"]
        if self.trains:
            names += ["documents", *(PAIRS if self.self_supervised else ())]
            names += ["beside_teachers"] if self.self_supervised and self.taught else []
        elif NOTEBOOKS[self.notebook]:
            names += ["compound"] if p.compound else SINGLE
        counting = {name: getattr(p, name) for name in names}
        return counting | (
            objective_settings(p, self.profile.further_teachers) if self.taught else {}
        )

    def same_but(self, *names: str) -> str:
        """A hashable value, equal for runs whose counting parameters differ in `names` at most.

        The notebook and the setting are not part of it: runs of different notebooks may train the
        same student, and a run is compared with the thesis' runs, whose profile is another.
        """
        return self.only(*(name for name in self.counting if name not in names))

    def only(self, *names: str) -> str:
        """A hashable value, equal for runs in which these parameters are equal as far as they
        count.
        """
        return json.dumps(
            {name: self.counting[name] for name in names if name in self.counting}, sort_keys=True
        )

    @property
    def cell(self) -> str:
        """Equal for runs in the same cell of a table of the thesis, which has one seed and one
        number of documents.
        """
        return self.same_but("seed", "documents")

    @cached_property
    def setting(self) -> str:
        """Fingerprint of all but the parameters: runs of one setting are comparable.

        `simde` counts in 07 only.
        """
        profile, evaluation = self.profile, self.profile.evaluation
        # Corpora and tasks enter by the fingerprints of their files below; plan and parameters do
        # not count.
        excluded: Any = dict.fromkeys(
            ("plan", "winners", "parameters", "notebooks", "corpus"), True
        )
        excluded |= {"contextual_teachers": {"corpus"}, "training": NOT_IN_FINGERPRINT}
        excluded["simde"] = {"training": NOT_IN_FINGERPRINT} if self.self_supervised else True
        unused = set() if self.self_supervised else {"few_shot", "few_shot_table"}
        excluded["evaluation"] = (
            unused | {"own_tasks", "benchmarks"} | (set() if evaluation.beside else {"beside"})
        )
        settings = profile.model_dump(mode="json", exclude=excluded)
        settings["student"]["width"] = None  # of a removed option: recorded runs are found again
        inputs = {
            "version": VERSIONS["run"],
            "profile": settings,
            "sources": [source_fingerprint(texts) for texts in profile.text_sources],
            "tasks": [
                task_fingerprint(name, evaluation)
                for name in (*evaluation.tasks, *evaluation.sweep_tasks)
            ],
            "models": [pretrained.fingerprint(name) for name in profile.models],
            "versions": {
                name: v
                for name, v in installed_versions().items()
                if name not in {"docemb", "python"}
            },
        }
        asked = asked_precision()
        if asked != "auto":  # a run of the machine's own choice is recognised on any machine
            inputs["precision"] = asked
        return fingerprint_of(inputs)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the run's record: a hash of all that the results depend on, computed without
        loading models.
        """
        return fingerprint_of(
            {"notebook": self.notebook, "parameters": self.counting, "setting": self.setting}
        )

    @property
    def paragraph_vectors(self) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors that the run trains or loads, with the profile's DM or DBOW where
        no parameter is.
        """
        p, settings = self.profile.parameters, self.profile.contextual_teachers
        if self.notebook == "02_paragraph_vector":
            asked = (
                members_of(p.compound)
                if p.compound
                else [{name: getattr(p, name) for name in SINGLE}]
            )
            return [
                (settings.DM if one["dm"] else settings.DBOW).model_copy(update=one)
                for one in asked
            ]
        names = {
            str(further.teacher)
            for further in self.profile.further_teachers
            if further.teacher and self.trains
        }
        names |= {*PV_NAMES} if self.notebook in BESIDE_CONTEXTUAL else set()
        return [member for name in sorted(names) for member in settings.members(name)]

    @cached_property
    def label(self) -> str:
        """Short and readable, as in the thesis' figures: `max-margin;MSE;γ=1.0`,
        `cosine;384;λ=0.5`.
        """
        p, further = self.profile.parameters, self.profile.further_teachers
        match self.notebook:
            case "01_corpus":
                return "corpus"
            case "02_paragraph_vector":
                return p.compound or label_of_paragraph_vector(
                    **{name: getattr(p, name) for name in SINGLE}
                )
            case "03_structural":
                return structural_label(p, further)
            case "04_projections":
                return f"{structural_label(p, further)};{_contextual_label(p, further)}"
            case "05_weighting":
                return _weighting_label(p, further)
            case "07_simde":
                return _pairs_label(p, further)
        return f"student {_student_label(p, further)};{_sizes(p)}"

    @cached_property
    def slug(self) -> str:
        """The label as one path component, with the profile, the documents and the seed."""
        p = self.profile.parameters
        parts = [self.profile.name, self.label]
        if self.notebook == "05_weighting" and p.contextual_teacher is not None:
            parts.append(_contextual_label(p))
        if self.notebook in {"03_structural", "04_projections", "05_weighting"}:
            parts.append(f"{p.documents}docs")
        parts.append(f"seed{p.seed}")
        slug = re.sub(r"([^\w.=+]|_)+", "-", "-".join(parts).translate(IN_ASCII)).strip("-")
        cut = slug.encode()[:180].decode(errors="ignore")  # names of files have a limit in bytes
        return slug if len(slug.encode()) <= 200 else f"{cut}-{self.fingerprint}"

    def check(self) -> None:
        """Check the combination of parameters and settings; `Stages.check` also asks the corpus.

        Raises InputError.
        """
        if not self.trains:
            return
        p, training, simde = self.profile.parameters, self.training, self.profile.simde
        section, size = (
            "simde.training" if self.self_supervised else "training",
            training.batch_size,
        )
        training.check_fills_a_batch(p.documents, section)
        dropout = self.profile.student.dropout if simde.dropout is None else simde.dropout
        if self.self_supervised and p.pairs == "dropout" and dropout == 0:
            raise InputError(NO_PAIRS)
        if self.taught:
            self._check_widths()
            for loss in contextual_losses(p, self.profile.further_teachers):
                components = int(
                    loss.partition(":")[2] or 0
                )  # of the B - 1 correlations of a batch of B documents
                if components >= size:
                    few = f"{loss} needs more correlations than the {size - 1} of a batch of {size}"
                    mend = f"raise {section}.batch_size far above {components}"
                    raise InputError(f"contextual_loss: {few}; {mend}")

    def _check_widths(self) -> None:
        """The two projections of each teacher must end equally wide, as far as widths are known
        without a model.
        """
        profile, p = self.profile, self.profile.parameters
        own = (
            "contextual",
            p.contextual_teacher,
            None,
            p.student_projection,
            p.contextual_projection,
        )
        further = profile.further_teachers
        teachers = [
            own,
            *(
                (t.name, t.teacher, t.model, t.student_projection, t.teacher_projection)
                for t in further
            ),
        ]
        student_width = width(profile.student.model)
        for name, teacher, model, student_spec, teacher_spec in teachers:
            teacher_width = (
                profile.contextual_teachers.width(teacher)
                if teacher
                else width(model)
                if model
                else None
            )
            if student_width is not None and teacher_width is not None:
                check_widths(student_spec, student_width, teacher_spec, teacher_width, teacher=name)


def roles_of(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> set[str]:
    own = {"structural": p.structural_loss, "contextual": p.contextual_teacher}
    return {role for role, named in own.items() if named is not None} | {
        teacher.role for teacher in further
    }


def contextual_losses(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> list[str]:
    own = [] if p.contextual_teacher is None else [p.contextual_loss]
    return own + [teacher.loss for teacher in further if teacher.role == "contextual"]


def objective_settings(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> dict[str, Any]:
    """The parameters of the losses that the student has: a group of parameters counts where its
    condition holds.
    """
    roles = roles_of(p, further)
    groups: list[tuple[Sequence[str], bool]] = [
        (["structural_loss"], p.structural_loss is not None),
        (["distance", "gamma"], p.structural_loss == "max-margin"),
        (["temperature"], p.structural_loss == "contrastive"),
        (["max_structural_len"], "structural" in roles),
        (CONTEXTUAL, p.contextual_teacher is not None),
        (SOFT_CCA, "soft-cca" in contextual_losses(p, further)),
        (["lam", "lam_by_length"], len(roles) == 2),
    ]
    settings = {name: getattr(p, name) for names, counts in groups if counts for name in names}
    if further:
        settings["further_teachers"] = [
            teacher.model_dump(exclude_defaults=True) for teacher in further
        ]
    return settings


def structural_label(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    """The structural loss in a label: `cosine`, `max-margin;MSE;γ=1.0`."""
    if p.structural_loss is None:
        return _names(further, "structural") or "only-contextual"
    if p.structural_loss == "max-margin":
        return f"max-margin;{'MSE' if p.distance == 'mse' else 'cosine'};γ={p.gamma}"
    if p.structural_loss == "contrastive":
        return f"contrastive{'' if p.temperature is None else f';τ={p.temperature}'}"
    return {"mse": "MSE"}.get(p.structural_loss, p.structural_loss)


def _contextual_label(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    if p.contextual_teacher is None:
        return _names(further, "contextual") or "only-structural"
    loss = "" if p.contextual_loss == "soft-cca" else f"{p.contextual_loss};"
    soft = {"δ": (p.delta, PAPER.delta), "β": (p.beta, PAPER.beta)} if not loss else {}
    others = "".join(
        f";{symbol}={value}" for symbol, (value, usual) in soft.items() if value != usual
    )
    return (
        f"{loss}{p.contextual_teacher};S:{p.student_projection};C:{p.contextual_projection}{others}"
    )


def _weighting_label(p: Parameters, further: Sequence[FurtherTeacher]) -> str:
    roles, structural = roles_of(p, further), structural_label(p, further)
    if "contextual" not in roles:
        masked = "" if p.max_structural_len is None else f";{p.max_structural_len}"
        return f"only-structural;{structural}{masked}"
    if "structural" not in roles:
        return f"only-contextual;{p.contextual_teacher}"
    if p.lam is None and p.lam_by_length is None and p.max_structural_len is None:
        return f"{structural};no-weighting"
    by_length = "" if p.lam_by_length is None else f";{p.lam_by_length}"
    return f"{structural};{p.max_structural_len};λ={p.lam}{by_length}"


def _student_label(p: Parameters, further: Sequence[FurtherTeacher]) -> str:
    contextual = "" if p.contextual_teacher is None else f";{_contextual_label(p)}"
    return _weighting_label(p, further) + contextual


def _pairs_label(p: Parameters, further: Sequence[FurtherTeacher]) -> str:
    """`SimDE;700 docs`; settings that differ from the paper's are named: `SimCSE;τ=0.1;mlm=0.0;700
    docs`.
    """
    parts = ["SimDE" if p.pairs == "halves" else "SimCSE"]
    if p.pair_temperature != PAPER.pair_temperature:
        parts.append(f"τ={p.pair_temperature}")
    if p.mlm_weight != PAPER.mlm_weight:
        parts.append(f"mlm={p.mlm_weight}")
    if p.beside_teachers is not None:
        parts += [f"×{p.beside_teachers} beside", _student_label(p, further)]
    return ";".join([*parts, _sizes(p)])


def _sizes(p: Parameters) -> str:
    return f"{p.documents} docs" + (f";seed {p.seed}" if p.seed else "")


def _names(further: Sequence[FurtherTeacher], role: str) -> str:
    return "+".join(teacher.name for teacher in further if teacher.role == role)
