"""The student that learns from pairs of texts of one document: without a teacher, or beside its teachers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docemb_lib import pretrained
from docemb_lib.errors import InputError
from docemb_lib.experiments.corpus_stage import check_documents
from docemb_lib.experiments.labels import label_of
from docemb_lib.experiments.objectives import make_objective, pair_settings
from docemb_lib.experiments.stages import HISTORY, TOKENS, Stages
from docemb_lib.experiments.teacher_stages import RECIPE
from docemb_lib.profile import Profile
from docemb_lib.settings import UNDECISIVE
from docemb_lib.workspace import Artefact, write_text

if TYPE_CHECKING:
    from docemb_lib.losses import MaskedLanguageHead
    from docemb_lib.student import Student
    from docemb_lib.teachers.embeddings import Teacher
    from docemb_lib.training import PairedDocuments, TokenFile


SIMDE = "07_simde"


def check_dropout(profile: Profile) -> None:
    """Refuse pairs by dropout where the profile switches dropout off; what a checkpoint has, training tells."""
    simde, student = profile.simde.dropout, profile.student.dropout
    if profile.parameters.pairs == "dropout" and (student if simde is None else simde) == 0:
        raise InputError("pairs: dropout makes no pairs of a student without dropout; set simde.dropout to 0.1")


class SimDEStages(Stages):
    """As `Stages`; its trained student is the one that has learnt from pairs, by the profile's `simde` settings."""

    @property
    def starting_student(self) -> Artefact:
        """The untrained student with the dropout that it has while it learns from pairs."""
        profile, dropout = self.profile, self.profile.simde.dropout
        if dropout is None:
            return self.untrained_student
        student = profile.student.model_copy(update={"dropout": dropout})
        return Stages(profile.model_copy(update={"student": student}), self.workspace).untrained_student

    def trained_student(self) -> Artefact:
        """A sentence-transformers folder, `history.json` and the head that the student guessed hidden words with."""
        from docemb_lib.training import precision_of

        p, settings = self.profile.parameters, self.profile.simde
        training = settings.training
        check_documents([p.documents], available=len(self.split("train")))
        inputs: dict[str, Any] = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "start": self.starting_student.fingerprint,
            "centre": self.profile.student.centre,
            "documents": p.documents,
            "seed": p.seed,
            "pairs": pair_settings(p, self.profile.further_teachers),
            "settings": settings.model_dump(exclude={"training", "dropout"}),
            "training": training.model_dump(exclude={*UNDECISIVE, "precision"}),
            "precision": precision_of(training.precision),
            "versions": {name: version(name) for name in ("torch", "transformers", "sentencex")},
        }
        teachers: Mapping[str, Teacher] = {}
        if p.beside_teachers is not None:
            self.check_negatives()
            teachers = self.teachers()
            inputs["teachers"] = {name: teacher.fingerprint for name, teacher in teachers.items()}
        build = partial(self._train_on_pairs, teachers=teachers)
        return self.workspace.artefact("student", inputs, build, resumable=True)

    def sentences(self, student: Student, split: str, rows: int) -> TokenFile:
        """The student's tokens of the first `rows` documents of a split by sentence, memory-mapped; written once."""
        from docemb_lib.training import TokenFile, encode_sentences, write_tokens

        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "split": split,
            "rows": rows,
            "tokenizer": self._pretrained_fingerprint(self.profile.student.model),
            "max_tokens": self._text_tokens(student),
            "language": self.profile.simde.language,
            "sentencex": version("sentencex"),
        }

        def build(folder: Path) -> None:
            write_tokens(
                folder / TOKENS,
                self.split(split).select(range(rows))["text"],
                lambda texts: encode_sentences(
                    student.tokenizer,
                    texts,
                    max_tokens=self._text_tokens(student),
                    language=self.profile.simde.language,
                ),
                total=rows,
                max_tokens=2 * self._text_tokens(student),
            )

        return TokenFile(self.workspace.artefact("sentences", inputs, build).path / TOKENS)

    def paired_documents(self, student: Student, split: str, rows: int) -> PairedDocuments:
        """Pairs of the first `rows` documents of a split, as far as they have two sentences."""
        from docemb_lib.training import PairedDocuments

        p = self.profile.parameters
        return PairedDocuments(
            self.sentences(student, split, rows),
            ids=self.split(split).select(range(rows))["id"][:],
            tokenizer=student.tokenizer,
            max_tokens=self._text_tokens(student),
            pairs=p.pairs,
            seed=p.seed,
        )

    def _text_tokens(self, student: Student) -> int:
        return min(student.max_tokens, self.profile.simde.max_tokens or student.max_tokens)

    def _train_on_pairs(self, folder: Path, *, teachers: Mapping[str, Teacher]) -> None:
        import torch
        from safetensors.torch import save_file

        from docemb_lib.losses import InfoNCE, PairObjective
        from docemb_lib.student import Student
        from docemb_lib.training import Taught, remove_checkpoints, train_on_pairs

        if (folder / HISTORY).is_file():  # written last: an earlier build was killed after training, while tidying up
            remove_checkpoints(folder)
            return
        p, settings = self.profile.parameters, self.profile.simde
        student = Student.load(self.starting_student.path)
        sizes = {"train": p.documents, "validation": len(self.split("validation"))}
        train, validation = (self.paired_documents(student, split, rows) for split, rows in sizes.items())
        taught = None
        if teachers:
            taught = Taught(*(self.training_documents(student, teachers, split, rows) for split, rows in sizes.items()))
        torch.manual_seed(p.seed)
        widths = {} if taught is None else {name: rows.shape[1] for name, rows in taught.train.teachers.items()}
        objective = PairObjective(
            student,
            contrast=InfoNCE(p.pair_temperature, symmetric=settings.symmetric),
            head=self._head(student) if p.mlm_weight else None,
            mlm_weight=p.mlm_weight,
            distillation=None if taught is None else make_objective(student, self.profile, widths),
            weight=p.beside_teachers or 1.0,
        )
        title = label_of(SIMDE, p, self.profile.further_teachers)
        history = train_on_pairs(
            objective, train, validation, taught=taught, settings=settings.training, seed=p.seed, folder=folder,
            title=title,
        )  # fmt: skip
        pairs = {name: value for name, value in pair_settings(p).items() if name != "objective"}
        self._centre(student)
        card = self._card(student, history.validation, documents=len(train), taught=bool(teachers), pairs=pairs)
        student.save(folder, card=card)
        if objective.head is not None:
            save_file(objective.head.state_dict(), str(folder / "head.safetensors"))
        write_text(folder / HISTORY, json.dumps(history._asdict(), sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _head(self, student: Student) -> MaskedLanguageHead:
        """The one that the encoder was trained with, or a new one where its checkpoint has none."""
        from docemb_lib.losses import MaskedLanguageHead
        from docemb_lib.student import loading

        config = student.config
        rows = student.model.get_input_embeddings().num_embeddings
        eps = getattr(config, "layer_norm_eps", None) or config.norm_eps
        head = MaskedLanguageHead(student.dim, rows, norm_eps=eps)
        source = pretrained.resolve(self.profile.student.model)
        weights = loading.load_masked_head(source, subfolder=loading.transformer_subfolder(source))
        if weights is not None:
            head.load_state_dict(weights)
        return head
