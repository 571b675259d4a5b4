"""Bad input: one line that names what to mend, exit code 2 before any work, and nothing left
behind.
"""

import json
import re
import shlex
import time
import unicodedata

import pytest
from conftest import docemb, write_files

CONTROL = "\x1b]0;owned\x07\u202e\x9b31m"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
BOMB += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
# The text of a profile on top of `small`, and what its line says.
PROFILES = [
    # YAML
    (BOMB, "an alias .* is not read; write the value again"),
    ("a: &a [*a]", "an alias"),
    ("a: " + "[" * 20_000, "not readable as YAML .*recursion"),
    ("a: " + "{" * 20_000, "recursion"),
    ("a:\n  " + "- " * 20_000, "recursion"),
    ("corpus: {seed: 2026-13-45}", "not readable as YAML .*month must be in 1..12"),
    ("parameters: {seed: " + "9" * 6_000 + "}", "a number of 6,000 digits"),
    ("parameters: {seed: 0x" + "f" * 6_000 + "}", "a number of 6,002 digits"),
    ("parameters: {lam: " + "1:" * 3_000 + "1}", "a number of 6,001 digits"),
    ("name: 2026-01-01", "name: input should be a valid string"),
    ("name: a\nname: b", "not readable as YAML .the key 'name' is there twice; keep one"),
    ("a: !!python/object/apply:os.system [id]", "could not determine"),
    ("a: !!timestamp z", "not readable as YAML"),
    ("a: \x1b[31m", "not readable as YAML"),
    ("a: [1, 2", "not readable as YAML"),
    ("? [1, 2]\n: 3", "unhashable key"),
    (r'"\e]0;a\a": 1', "unknown key"),
    ("1: 2", "unknown key|string"),
    (b"name: caf\xe9", "not readable as YAML .*utf-8"),
    (b"\xff\xfe\x00", "not readable as YAML"),
    # numbers
    ("parameters: {seed: 4294967296}", "parameters.seed: .*less than 4294967296, got 4294967296"),
    ("parameters: {seed: '4294967296'}", "parameters.seed: .*less than 4294967296"),
    ("corpus: {seed: 4294967296}", "corpus.seed: .*less than"),
    ("parameters: {seed: -1}", "parameters.seed: .*greater than or equal to 0"),
    ("parameters: {seed: 1.5}", "parameters.seed: .*integer"),
    ("parameters: {seed: .nan}", "parameters.seed: .*finite"),
    ("parameters: {lam: off}", "parameters.lam: must be a number"),
    ("student: {lexical: true}", "student.lexical: must be a number"),
    ("evaluation: {rounds: [null, 10]}", "rounds must ascend"),
    ("evaluation: {rounds: [10, 10]}", "rounds must ascend"),
    (
        "further_teachers: [{name: loss, role: contextual, teacher: DM, loss: mse}]",
        "further_teachers: the name 'loss' is",
    ),
    ("parameters: {lam: .nan}", "parameters.lam: .*finite"),
    ("parameters: {lam: .inf}", "parameters.lam: .*finite"),
    ("parameters: {lam: 1.5}", r"parameters.lam: .*less than or equal to 1, got 1\.5"),
    ("parameters: {lam: 1.0e+400}", "parameters.lam: .*finite"),
    ("parameters: {documents: 1}", "parameters.documents"),
    ("training: {batch_size: 1}", "batch_size"),
    ("training: {epochs: 0}", "training.epochs"),
    # sizes
    ("student: {layers: []}", "student.layers: .*at least 1 item"),
    ("student: {layers: [true]}", "student.layers: .*must be a number"),
    ("evaluation: {few_shot_table: {other: true}}", "few_shot_table: .*must be a number"),
    ("corpus: {documents: 1:20}", "1:20 is not a decimal number.*write it in digits without :"),
    ("parameters: {seed: 010}", "010 is not a decimal number.*without a leading 0"),
    ("parameters: {lam: 0:30.5}", "0:30.5 is not a decimal number"),
    ("student: {layers: [-1]}", "student.layers.0: .*or equal to 0"),
    ("student: {layers: 3}", "student.layers: .*valid list"),
    ("student: {attention_window: 33}", "attention_window: .*multiple of 2"),
    ("student: {attention_window: 2}", "equal to 4"),
    ("student: {attention_window: 1000000000000}", "student.attention_window: .*2097152"),
    ("student: {max_tokens: 1000000000000}", "student.max_tokens: .*1048576"),
    ("student: {max_tokens: 7}", "equal to 8"),
    ("structural_teacher: {max_tokens: 1000000000000}", "structural_teacher.max_tokens: .*1048576"),
    ("simde: {max_tokens: 1000000000000}", "simde.max_tokens: .*1048576"),
    ("contextual_teachers: {lsa_dim: 100000000}", "lsa_dim"),
    ("parameters: {vector_size: 100000000}", "vector_size"),
    ("student: {lexical: 100000000}", "student.lexical"),
    (
        "parameters: {student_projection: 100000000}",
        "student_projection: .*'100000000' is not a block; write a width from 1 to 65536",
    ),
    (
        "parameters: {contextual_projection: 5(Tanh)}",
        "contextual_projection: .*'5.Tanh.' is not a block",
    ),
    (
        "parameters: {contextual_projection: ''}",
        "contextual_projection: projection '': '' is not a block",
    ),
    ("parameters: {contextual_projection: 4097x0}", "contextual_projection: .*'0' is not a block"),
    (
        "parameters: {lam_by_length: 'linear:" + "9" * 5_000 + ":1'}",
        "lam_by_length: must be None or linear",
    ),
    # names
    ("student: {model: no/such-model}", "no/such-model: there is no such folder"),
    ("structural_teacher: {model: no/such-model}", "no/such-model: there is no such folder"),
    ("student: {model: ./missing}", "params/missing: there is no such folder"),
    (
        "further_teachers: [{name: a, role: structural, loss: mse, model: no/such-model, "
        "student_projection: 8, teacher_projection: 8}]",
        "no/such-model: there is no such folder",
    ),
    ("corpus: {packages: []}", "corpus.packages: .*at least 1 item"),
    ("corpus: {packages: [no_such]}", "corpus.packages: no_such is not"),
    ("corpus: {source: local, path: []}", "path is missing"),
    (
        "corpus: {source: local, path: nowhere}\n"
        "evaluation: {tasks: [halves], sweep_tasks: [halves]}",
        "corpus.path: .*does not exist",
    ),
    ("evaluation: {tasks: [halfs]}", "no task 'halfs'"),
    ("evaluation: {tasks: []}", "evaluation.tasks"),
    (r'evaluation: {tasks: ["\e[31m\u202e"]}', "there is no task"),
    (
        'name: "\\e]0;a\\a"\nplan: [{lam: 1}]',
        "plan.0: names neither a notebook nor a grid; write {notebook:",
    ),
    (
        "evaluation: {tasks: [" + "halfs" * 100_000 + "]}",
        "there is no task 'halfs.* … .*define it in own_tasks",
    ),
    ("parameters: {lam: ''}", "parameters.lam: .*valid number"),
    ("parameters: {contextual_teacher: LDA}", "contextual_teacher"),
    (
        "parameters: {structural_loss: a b}",
        "structural_loss: there is no such loss .*mse, cosine, .*got .a b.",
    ),
    (
        "parameters: {min_count: 5%}",
        "parameters.min_count: input should be a valid integer, .* got '5%'",
    ),
    (
        "parameters: {compound: DM;99999999999;stem;2+DBOW;8;stem;2}",
        "compound: must be two or more",
    ),
    ("parameters: 3", "parameters: .*valid"),
    ("plan: 3", "plan: .*list"),
    ("plan: []", "an empty plan leaves no run"),
    (
        "plan: [{notebook: 05_weighting, seed: 4294967296}]",
        r"plan, line 1 \(05_weighting\): 05_weighting: seed: .*less than 4294967296",
    ),
    ("plan: [{notebook: ''}]", "notebook '' is unknown"),
    ("base: bad.yaml", "leads in a circle"),
    ("base: 3", "base: there is no file 3; name a .yaml file"),
    ("base: none.yaml", "base: there is no file .none.yaml.; name a .yaml file"),
    ("plan: [{grid: none}]", "grid 'none' is unknown"),
]
SWEEP = ["sweep", "05", "--grid", "params/g.yaml", "--profile", "small", "--dry-run"]
PARAMETERS = [
    ("profile=tiny", "-p profile=tiny: the profile is no parameter; give it as --profile tiny"),
    ("lam=", "-p lam=: this is not NAME=VALUE; write"),
    ("=1", "-p =1: this is not NAME=VALUE; write"),
    ("lam", "-p lam: this is not NAME=VALUE; write"),
    ("lam= ", "this is not NAME=VALUE; write"),
    ("seed=" + "9" * 6_000, "seed: unable to parse"),
    ("seed=0x" + "f" * 6_000, "seed: "),
    ("seed=4294967296", "seed: .*less than 4294967296"),
    ("seed=010", "-p seed=010: 010 is not a decimal number; write its digits alone"),
    ("documents=1:20", "-p documents=1:20: 1:20 is not a decimal number"),
    ("seed=2026-13-45", "seed: "),
    ("lam=" + "[" * 20_000, "lam: "),
    ("lam=&a [*a]", "lam: "),
    ("lam=nan", "lam: "),
    ("lam=.nan", "lam: "),
    ("lam=2", "lam: .*less than or equal to 1"),
    ("lam='null'", "lam: got the string 'null'; to switch it off write None"),
    (f"lam={CONTROL}", "lam: "),
    ("student_projection=100000000", "is not a block"),
    ("lamb=1", "unknown parameter 'lamb'; did you mean lam"),
    ("lambda=1", "unknown parameter 'lambda'; did you mean lam"),
]
GRIDS = [
    (BOMB, "an alias"),
    ("runs: 3", "runs: input should be a valid list"),
    ("runs: [{lam: 2}]", "lam: .*less than or equal to 1"),
]
RETRIEVAL = (
    "evaluation: {{tasks: [own], "
    "own_tasks: [{{name: own, kind: retrieval, path: docs.jsonl, relevance: {}}}]}}"
)
ROWS = "".join(
    json.dumps({"id": str(n), "text": f"text {n}", "label": "ab"[n % 2]}) + "\n" for n in range(40)
)
TASKS = [
    (
        "links.jsonl",
        b'{"sauce": "1", "target": "2"}',
        r"links.jsonl, line 1: the row has no source, only \['1', '2'\]; "
        "name two documents, source and target",
    ),
    ("links.jsonl", b'{"source": "1"}', r"the row has no target, only \['1'\]"),
    (
        "links.jsonl",
        b'{"source": "1", "target": "99"}',
        r"1 of 1 links name 1 ids that no document has \('99'; .* look like '0', '1', '2'\)",
    ),
    ("links.jsonl", b"", "0 queries"),
    ("links.jsonl", b'{"source": "1", "target": "1"}', "line 1: the row names .* '1' twice"),
    ("links.jsonl", b"[", "not JSON"),
    ("links.csv", b"1,2,3,4,5\n", "links.csv, row 1: it has 5 values; write two ids"),
    ("links.csv", b"1,2,high\n", "links.csv, row 1: the grade is 'high'; write an integer"),
    ("links.csv", b'"1,2\n', "broken quoting"),
    ("links.csv", b"\0,1", "save it again, whole and as UTF-8"),
    ("links.csv", b"1,\x1b[31m\n", "1 ids that no document has"),
    ("links.xml", b"", "not a data file"),
    ("links.parquet", b"PAR1", "not a whole parquet file"),
    (
        "links.csv.gz",
        b"no gzip",
        "links.csv.gz, near line 0: the file cannot be read .Not a gzipped file",
    ),
]
DOCUMENT = b'{"id": "1", "text": "one"}\n'
COMMANDS = [
    ("run '' --profile small", {}, "notebook '' is unknown"),
    ("run --from '' --profile small", {}, "notebook '' is unknown"),
    ("results ''", {}, "notebook '' is"),
    (
        "run 03 --from 03 --profile small",
        {},
        "--from 03 starts the plan there, and 03 is one notebook; give one of them",
    ),
    (
        "run -p lam=0.5 --profile small",
        {},
        "-p lam=0.5: parameters are those of one notebook; name it, as in docemb run 05 -p lam=0.5",
    ),
    (
        "run 05 -p lamm=0.5 --profile small",
        {},
        "05_weighting: unknown parameter 'lamm'; did you mean lam?",
    ),
    ("run 05 -p lam=2 --profile small", {}, "lam"),
    ("run 01 -p lam=0.5 --profile small", {}, "01_corpus: unknown parameter 'lam'"),
    (
        "run 05 -p corpus=1 --profile small",
        {},
        "05_weighting: corpus is a field of a profile and no parameter of a notebook; "
        "name the profile instead, as in -p profile mine.yaml",
    ),
    ("sweep '' --grid structural --dry-run --profile small", {}, "notebook '' is unknown"),
    ("run --profile ''", {}, "profile '' is unknown"),
    (
        "run --profile none.yaml",
        {},
        "profile none.yaml: there is no such file; give the path of one, or one of .*small",
    ),
    ("results 9", {}, "unknown"),
    (f"run --profile '{CONTROL}'", {}, "profile .* is unknown"),
    ("sweep 05 --grid '' --dry-run --profile small", {}, "grid '' is unknown"),
    ("sweep 05 --grid structural --json --profile small", {}, "--json lists the runs"),
    ("results --json --csv", {}, "exclude each other"),
    (
        "sweep 05 --grid params/g.yaml --profile small --workers 0",
        {"params/g.yaml": "runs: [{}]"},
        "workers: got 0; give 1 or more",
    ),
    (
        "sweep 05 --grid params/g.yaml --profile small --scheduler ''",
        {"params/g.yaml": "runs: [{}]"},
        "scheduler: the argument is empty; name an address or a file",
    ),
    (
        "sweep 05 --grid params/g.yaml --profile small --workers 2 --scheduler a:1",
        {"params/g.yaml": "runs: [{}]"},
        "workers: the scheduler a:1 has its own; leave workers out",
    ),
    (
        "sweep 05 --grid params/g.yaml --profile small --dry-run -p seed=1",
        {"params/g.yaml": "axes: {seed: [0, 1]}"},
        "run 2: it is the same as run 1 .*; leave one of them out, or vary another parameter",
    ),
    ("evaluate params --profile small --task ''", {}, "no task ''"),
    (
        "embed m in.jsonl -o there.npy",
        {"there.npy": b"old"},
        "-o there.npy: this file exists already; give --force",
    ),
    ("embed m none.jsonl -o out.npy", {}, "none.jsonl does not exist"),
    ("embed m in.xml -o out.npy", {"in.xml": b""}, "not a data file"),
    ("embed m in.jsonl -o out.npy", {"in.jsonl": b"{"}, "in.jsonl, line 1: the line is not JSON"),
    ("embed m empty -o out.npy", {"empty/x": b""}, "holds no document"),
    ("embed m in.jsonl -o out.npy", {"in.jsonl": DOCUMENT * 2}, "has the id '1', too"),
    ("embed m in.jsonl -o out.npy", {"in.jsonl": DOCUMENT.replace(b"one", b" ")}, "is blank"),
    ("embed m in.jsonl -o out.npy", {"in.jsonl": DOCUMENT}, "m: "),
    (
        "embed m in.jsonl -o out.npy",
        {"in.jsonl": DOCUMENT, "m/config.json": b"{"},
        "not valid JSON|cannot be used",
    ),
    ("embed m in.jsonl -o out.npy", {"in.jsonl": f'{{"{CONTROL}": 1}}'.encode()}, "not JSON"),
    ("embed m bad\x1b[31m.jsonl -o out.npy", {"bad\x1b[31m.jsonl": b"{"}, "not JSON"),
    ("run --profile smaal", {}, r"profile 'smaal' is unknown; did you mean small\?"),
    ("run --profile params/own.yaml", {}, "corpus.path.*CHANGE-ME"),
    ("results 5_weighting", {}, r"notebook '5_weighting' is unknown; did you mean 05_weighting\?"),
    ("results --claims small", {}, "small: no run of chapter 4 and no final evaluation"),
    (
        "train --profile small -p lam",
        {},
        "-p lam: this is not NAME=VALUE; write it as in -p lam=0.5",
    ),
    ("evaluate params --profile smal", {}, "profile 'smal' is unknown"),
    ("train --profile small -p lamb=0.5", {}, r"unknown parameter 'lamb'; did you mean lam\?"),
    (
        "evaluate no/model --profile small",
        {},
        "no/model: there is no such folder, it was not downloaded before, and",
    ),
    (
        "evaluate params --profile small",
        {},
        "params: there is neither a modules.json nor a config.json; "
        "give the folder or the hub id of a model",
    ),
    (
        "evaluate params --profile small --task halfs",
        {},
        "--task: evaluation: there is no task 'halfs'; known are package.*halves",
    ),
    ("evaluate params --profile small --task wines", {}, "wines is on no hub; name the folder"),
    ("embed student t -o out.csv", {"t/a.txt": b"a"}, "out.csv.*.parquet"),
    (
        "init -o x.yaml",
        {},
        "-o x.yaml: this option names the profile of an INPUT, .*; "
        "give `docemb init INPUT -o x.yaml`",
    ),
    (
        "embed m in.jsonl -o params.npy --force",
        {"params.npy/x": b"", "in.jsonl": DOCUMENT},
        "-o params.npy: this is a folder; name a file",
    ),
    (
        "train --profile small -p lam=0.1 -p lam=0.2",
        {},
        "-p lam=0.2: lam is given twice; give each parameter once",
    ),
    (
        "embed m a.csv -o out.npy",
        {"a.csv": b"id,text,text\n1,a,b\n"},
        "two columns have the same name",
    ),
    ("embed student nothing -o out.npy", {}, "nothing does not exist"),
    ("embed no/student t -o out.npy", {"t/a.txt": b"a"}, "no/student"),
    ("adapt m in.jsonl -o params", {}, "-o params: this exists already; name a new folder"),
    ("adapt m none.jsonl -o out", {}, "does not exist"),
    (
        "adapt m t -o t/out",
        {"t/a.txt": b"a"},
        "-o t/out: this lies in t and would be read with it; name a folder elsewhere",
    ),
    ("init a.pdf", {"a.pdf": b"x"}, "a.pdf: this is not a data file; give .*, or a folder"),
    ("sweep 99 --grid structural --profile small", {}, "'99' is"),
    ("results 05 --claims small", {}, "leave out 05"),
]
BAD = ["run", "--profile", "bad"]
NAMED = r"(bad.*|^Error: (\w+ \(.*\): )?)"  # the file, or the run before the field
CASES = [
    *(
        (
            BAD,
            {"params/bad.yaml": text if "base:" in str(text) else f"base: small.yaml\n{text}"},
            f"{NAMED}({said})",
        )
        for text, said in PROFILES
        if isinstance(text, str)
    ),
    *(
        (BAD, {"params/bad.yaml": text}, f"{NAMED}({said})")
        for text, said in PROFILES
        if isinstance(text, bytes)
    ),
    *(([*SWEEP, "-p", given], {"params/g.yaml": "runs: [{}]"}, said) for given, said in PARAMETERS),
    *((SWEEP, {"params/g.yaml": text}, said) for text, said in GRIDS),
    *(
        (
            BAD,
            {
                "params/bad.yaml": f"base: small.yaml\n{RETRIEVAL.format(name)}",
                "params/docs.jsonl": ROWS,
                f"params/{name}": content,
            },
            said,
        )
        for name, content, said in TASKS
    ),
    *((shlex.split(command), files, said) for command, files, said in COMMANDS),
]


def state(root):
    return {
        path: path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.mark.parametrize(("arguments", "files", "said"), CASES, ids=range(len(CASES)))
def test_bad_input_is_one_line_and_leaves_nothing(workspace_root, arguments, files, said):
    write_files(workspace_root, files)
    before = state(workspace_root)
    begun = time.process_time()
    done = docemb(*arguments)
    assert time.process_time() - begun < 20  # nothing was built
    assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    assert re.search(said, line), line[-600:]
    assert line.startswith("Error: ")
    assert len(line) <= len("Error: ") + 1_000
    assert not [c for c in line if unicodedata.category(c) in {"Cc", "Cf", "Cs"}]
    assert state(workspace_root) == before
