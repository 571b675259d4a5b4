"""Bad input: one line that names what to mend, exit code 2 before any work, and nothing left
behind.
"""

import re
import shlex
import unicodedata

import pytest
from conftest import docemb, write_files

CONTROL = "\x1b]0;owned\x07\u202e\x9b31m"
# The text of a profile on top of `small`, and what its line says.
PROFILES = [
    # YAML
    ("a: " + "[" * 20_000, "not readable as YAML .*recursion"),
    ("name: a\nname: b", "not readable as YAML .the key 'name' is there twice; keep one"),
    ("a: !!python/object/apply:os.system [id]", "could not determine"),
    # numbers and sizes
    ("parameters: {seed: 4294967296}", "parameters.seed: .*less than 4294967296, got 4294967296"),
    ("parameters: {lam: 1.5}", r"parameters.lam: .*less than or equal to 1, got 1\.5"),
    ("student: {layers: [true]}", "student.layers.0: must be a number"),
    ("parameters: {student_projection: 100000000}", "'100000000' is not a block; write a width"),
    # names
    ("corpus: {source: local, path: ''}", "corpus.path: the path is empty; name a file"),
    ("student: {model: ./missing}", "params/missing: there is no such folder"),
    ("corpus: {packages: [no_such]}", "corpus.packages: no_such is not"),
    (r'evaluation: {tasks: ["\e[31m\u202e"]}', "there is no task"),
    ("evaluation: {tasks: [" + "halfs" * 100_000 + "]}", "there is no task 'halfs.* … .*define"),
    ("base: bad.yaml", "leads in a circle"),
]
SWEEP = ["sweep", "05", "--grid", "params/g.yaml", "--profile", "small", "--dry-run"]
PARAMETERS = [
    ("lam=", "-p lam=: write NAME=VALUE, each name once"),
    ("lam=" + "[" * 20_000, "lam: "),
    ("lam='null'", "lam: got the string 'null'; to switch it off write None"),
    (f"lam={CONTROL}", "lam: "),
    ("lamb=1", "unknown parameter 'lamb'; did you mean lam"),
]
GRIDS = [("runs: [{lam: 2}]", "lam: .*less than or equal to 1")]
DOCUMENT = b'{"id": "1", "text": "one"}\n'
COMMANDS = [
    ("run --from '' --profile small", {}, "notebook '' is unknown"),
    (
        "sweep --grid params/g.yaml --profile small",
        {"params/g.yaml": "runs: [{}]"},
        "notebook is mi",
    ),
    ("adapt all-MiniLM-L6 x.jsonl -o o", {"x.jsonl": b"{"}, "did you mean all-MiniLM-L6-v2"),
    ("run 05 -p lamm=0.5 --profile small", {}, "05_weighting: unknown parameter 'lamm'; did you"),
    (f"run --profile '{CONTROL}'", {}, "profile .* is unknown"),
    (
        "sweep 05 --grid params/g.yaml --profile small --workers 0",
        {"params/g.yaml": "runs: [{}]"},
        "workers: got 0; give 1 or more",
    ),
    (
        "sweep 05 --grid params/g.yaml --profile small --dry-run -p seed=1",
        {"params/g.yaml": "axes: {seed: [0, 1]}"},
        "run 2: it is the same as run 1 .*; leave one of them out, or vary another parameter",
    ),
    ("train --profile small -p lam=0.1 -p lam=0.2", {}, "-p lam=0.2: write NAME=VALUE, each"),
    ("evaluate params --profile small --task halfs", {}, "no task 'halfs'; known are package"),
    (
        "embed m in.jsonl -o there.npy",
        {"there.npy": b"old"},
        "-o there.npy: this exists already; name a new file",
    ),
    (
        "embed m in.jsonl -o out.npy",
        {"in.jsonl": b"{"},
        "in.jsonl, row 1: this is not JSON .*leave out",
    ),
    ("embed m in.jsonl -o out.npy", {"in.jsonl": DOCUMENT * 2}, "has the id '1'; rename"),
    (
        "embed m in.jsonl -o out.npy",
        {"in.jsonl": DOCUMENT, "m/config.json": b"{"},
        "m: its config.json cannot be used .*; restore its files",
    ),
    ("embed m bad\x1b[31m.jsonl -o out.npy", {"bad\x1b[31m.jsonl": b"{"}, "not JSON"),
    ("adapt m t -o t/out", {"t/a.txt": b"a"}, "-o t/out: this lies in t and would be read with it"),
    ("init a.pdf", {"a.pdf": b"x"}, "a.pdf: this is not a data file; give .*, or a folder"),
]
BAD = ["run", "--profile", "bad"]
BASE = "base: small.yaml\n"
NAMED = r"(bad.*|^Error: (\w+ \(.*\): )?)"  # the file, or the run before the field
SMALL = {"params/g.yaml": "runs: [{}]"}
CASES = [(shlex.split(command), files, said) for command, files, said in COMMANDS]
CASES += [([*SWEEP, "-p", text], SMALL, said) for text, said in PARAMETERS]
CASES += [(SWEEP, {"params/g.yaml": text}, said) for text, said in GRIDS]
for text, said in PROFILES:
    whole = text if text.startswith("base:") else BASE + text
    CASES.append((BAD, {"params/bad.yaml": whole}, f"{NAMED}({said})"))
CASES.append((BAD, {"params/bad.yaml": b"name: caf\xe9"}, "not readable as YAML .*utf-8"))


def state(root):
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {path: path.stat().st_size for path in files}


@pytest.mark.parametrize(("arguments", "files", "said"), CASES, ids=range(len(CASES)))
def test_bad_input_is_one_line_and_leaves_nothing(workspace_root, arguments, files, said):
    write_files(workspace_root, files)
    before = state(workspace_root)
    done = docemb(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    assert re.search(said, line), line[-600:]
    assert line.startswith("Error: ")
    assert len(line) <= len("Error: ") + 1_000
    assert not [c for c in line if unicodedata.category(c) in {"Cc", "Cf", "Cs"}]
    assert state(workspace_root) == before
