"""Makes collections of manual pages from Debian packages: `python prepare.py PACKAGES INTO NAME
...`.

PACKAGES holds unpacked packages (`dpkg-deb -x`); `mandoc` renders the pages. INTO gets of each NAME
in COLLECTIONS NAME.jsonl.gz (id, text) and NAME.tsv, in which a page is a source and each page of
its SEE ALSO section a target. That section and those on authors and copyright are left out of the
texts. Pages that name more than twelve others are no sources. Of pages with one name in several
sections the last is kept.
"""

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COLLECTIONS = {  # name: package, folders, files
    "linux": ("manpages*", "man*", r"\.[27]\.gz$"),
    "openssl": ("libssl-doc", "man*", r"ssl\.gz$"),
    "git": ("git-man", "man*", r"\.[1-7]\.gz$"),
    "spanish": ("manpages-es", "es/man[17]", ""),
    "polish": ("manpages-pl", "pl/man[178]", ""),
    "german": ("manpages-de", "de/man[78]", ""),
    "chinese": ("manpages-zh", "zh_CN/man[1357]", ""),
    "japanese": ("manpages-ja", "ja/man[78]", ""),
}
SEE_ALSO = (
    r"SEE ALSO|VÉASE TAMBIÉN|ZOBACZ TAKŻE|SIEHE AUCH|関連項目|.*(参[见阅]|[另又]见|另请参阅|参考).*"
)
LEFT_OUT = rf"""(?x){SEE_ALSO.replace(" ", "[ ]")}|AUTHORS?|COPYRIGHT|COLOPHON|AUTOR|AUTORES|AUTORZY|AUTOREN
    |INFORMAR[ ]DE[ ]ERRORES|ZGŁASZANIE[ ]BŁĘDÓW|FEHLER[ ]MELDEN|PRAWA[ ]AUTORSKIE|TRADUCCIÓN|TŁUMACZENIE|ÜBERSETZUNG
    |KOLOPHON|この文書について|翻訳者謝辞|バグ報告|.*(著者|作者|著作権|译者|翻译|版权|中文版|报告错误).*|跋"""
MOST = 12  # targets of a source


def rendered(page: Path) -> str:
    form = "ascii" if page.parts[-3] == "man" else "utf8"  # below the folder of a language
    command = f"mandoc -T {form} -O width=200 '{page}' | col -b"
    return subprocess.run(command, shell=True, capture_output=True, check=True).stdout.decode(
        errors="replace"
    )


def sections(text: str) -> Iterable[tuple[str, str]]:
    """Titles and texts of a page, without its first and last line, which repeat its name."""
    title, lines = "", []
    for line in text.splitlines()[1:-1]:
        if line and not line.startswith(" "):
            yield title, "\n".join(lines)
            title, lines = line.strip().upper(), []
        lines.append(re.sub(r"[ \t]+", " ", line))
    yield title, "\n".join(lines)


def write(packages: Path, name: str, into: Path) -> None:
    package, folders, files = COLLECTIONS[name]
    found = [
        p
        for p in packages.glob(f"{package}/usr/share/man/{folders}/*.gz")
        if re.search(files, p.name)
    ]
    whole = sorted(
        p for p in found if not p.is_symlink() and gzip.decompress(p.read_bytes())[:4] != b".so "
    )
    with ThreadPoolExecutor() as pool:
        texts = dict(
            zip(
                [re.sub(r"\.[^.]*\.gz$", "", p.name) for p in whole],
                pool.map(rendered, whole),
                strict=True,
            )
        )
    with (
        gzip.open(into / f"{name}.jsonl.gz", "wt", encoding="utf-8") as pages,
        (into / f"{name}.tsv").open("w") as links,
    ):
        links.write("source\ttarget\n")
        for source, text in sorted(texts.items()):
            parts = list(sections(text))
            kept = "\n".join(part for title, part in parts if not re.fullmatch(LEFT_OUT, title))
            pages.write(json.dumps({"id": source, "text": kept}) + "\n")
            listed = " ".join(part for title, part in parts if re.fullmatch(SEE_ALSO, title))
            targets = {*re.findall(r"[A-Za-z_][\w:.-]*", listed)} & {*texts} - {source}
            links.writelines(
                f"{source}\t{target}\n" for target in sorted(targets) if len(targets) <= MOST
            )


if __name__ == "__main__":
    packages, into = map(Path, sys.argv[1:3])
    into.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[3:]:
        write(packages, name, into)
