"""What MPNet's biases cost on a CPU: its student beside the same student without them.

    python tests/benchmarks/biases.py [--model FOLDER] [--documents N] [--repeats N] [--json]

Both have four layers, and take turns in one process on pages of the installed documentation, of
about 4,000 to 1,000 tokens, each alone; tokenising does not count. Seconds are medians, and so is
the ratio of a turn. In bf16, too, where the processor is fast at it; DOCEMB_PRECISION chooses.
Measure on an idle machine: beside other work, threads wait long for each other in each block.
`--documents 1 --repeats 1` shows that all parts run.
"""

import copy
from functools import partial
from statistics import median
from timeit import timeit

import numpy as np
from student import embed_by_student, forward, options, show  # the script beside this one

from docemb_lib.base.hardware import asked_precision, uses_bf16
from docemb_lib.corpus.installed_docs import installed_docs
from docemb_lib.student import Student

LAYERS = 4
LONGEST = 4096
WINDOW = 256  # as in `docemb adapt`


def main() -> None:
    parser = options(__doc__, documents=3)
    parser.add_argument("--model", default="sentence-transformers/all-mpnet-base-v2")
    given = parser.parse_args()
    with_biases = Student.from_encoder(
        given.model, layers=[*range(LAYERS)], max_tokens=LONGEST, attention_window=WINDOW
    )
    without = copy.deepcopy(with_biases)
    without.model.encoder.offset_bias = None
    pages = installed_docs(["scipy"], words=(500, 5000))
    tokens = with_biases.tokenize([page.text for page in pages]).sequences
    lengths = np.array([len(ids) for ids in tokens])
    rows_of_pages = []
    for wanted in np.geomspace(LONGEST, 1000, given.documents):
        rows_of_pages.append(np.abs(lengths - wanted).argmin())

    precisions = {"fp32": False} if asked_precision() != "bf16" else {}
    if uses_bf16():
        precisions["bf16"] = True
    rows = []
    for precision, bf16 in precisions.items():
        for row in rows_of_pages:
            batches = [[np.array(tokens[row])]]
            runs = []
            for student in (with_biases, without):
                runs.append(partial(forward, partial(embed_by_student, student, bf16), batches))
                runs[-1]()  # warms up
            turns = []
            for _ in range(given.repeats):
                turns.append([timeit(run, number=1) for run in runs])
            seconds = np.array(turns)  # (repeats, 2)
            rows.append(
                {
                    "precision": precision,
                    "tokens": int(lengths[row]),
                    "seconds": median(seconds[:, 0]),
                    "without_biases": median(seconds[:, 1]),
                    "ratio": median(seconds[:, 0] / seconds[:, 1]),
                }
            )
    show(rows, given, given.json)


if __name__ == "__main__":
    main()
