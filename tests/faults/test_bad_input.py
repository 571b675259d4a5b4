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
    ("parameters: {student_projection: 100000000}", "'100000000' is not a block; write a width"),
    # names
    ("corpus: {encoding: utf-9}", "corpus.encoding: encoding: unknown encoding: utf-9; give"),
    ("corpus: {source: local, path: ''}", "corpus.path: the path is empty; name a file"),
    ("student: {model: ./missing}", "params/missing: there is no such folder"),
    ("corpus: {packages: [no_such]}", "corpus.packages: no_such is not"),
    (r'evaluation: {tasks: ["\e[31m\u202e"]}', "there is no task"),
    ("evaluation: {tasks: [" + "halfs" * 100_000 + "]}", "there is no task 'halfs.* … .*define"),
]
SWEEP = ["sweep", "05", "--grid", "params/g.yaml", "--profile", "small", "--dry-run"]
PARAMETERS = [
    ("lam=", "-p lam=: write NAME=VALUE, each name once"),
    ("lam=" + "[" * 20_000, "lam: "),
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
    (f"run --profile '{CONTROL}'", {}, "profile .* is unknown"),
    ("train --profile small -p lam=0.1 -p lam=0.2", {}, "-p lam=0.2: write NAME=VALUE, each"),
    ("evaluate m --profile small --scored", {}, "--texts and --links .* in place of --profile"),
    ("evaluate m --profile small --texts t --links l", {}, "in place of --profile; give one"),
    (
        "evaluate gone --texts t.jsonl --links l.tsv",
        {"t.jsonl": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}], "l.tsv": b"1\t2\n"},
        "gone: there is no such folder",
    ),
    ("evaluate params --profile small --task halfs", {}, "no task 'halfs'; known are package"),
    (
        "embed m in.jsonl -o out.npy",
        {"in.jsonl": b"{"},
        "in.jsonl, row 1: this is not JSON .*leave out",
    ),
    (
        "embed m in.jsonl -o out.npy",
        {"in.jsonl": DOCUMENT, "m/config.json": b"{"},
        "m: its config.json cannot be used .*; restore its files",
    ),
    ("embed m bad\x1b[31m.jsonl -o out.npy", {"bad\x1b[31m.jsonl": b"{"}, "not JSON"),
    ("results", {"outputs": b""}, "outputs: outputs are written there, but this is a"),
    ("adapt m t -o t/out", {"t/a.txt": b"a"}, "-o t/out: this lies in t and would be read with it"),
]
BAD = ["run", "--profile", "bad"]
NAMED = r"(bad.*|^Error: (\w+ \(.*\): )?)"  # the file, or the run before the field
SMALL = {"params/g.yaml": "runs: [{}]"}
CASES = [(shlex.split(command), files, said) for command, files, said in COMMANDS]
CASES += [([*SWEEP, "-p", text], SMALL, said) for text, said in PARAMETERS]
CASES += [(SWEEP, {"params/g.yaml": text}, said) for text, said in GRIDS]
for text, said in PROFILES:
    CASES.append((BAD, {"params/bad.yaml": f"base: small.yaml\n{text}"}, f"{NAMED}({said})"))
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
