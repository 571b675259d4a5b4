"""The site: the Markdown pages of the repository, where they lie, and the API from docstrings.

    sphinx-build -W -c docs . site

Its source is the repository itself, so that a link that is right on GitHub is right in the site,
too. Neither the build nor the pages need a network.
"""

import inspect
import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sphinx.application import Sphinx

from docemb_lib import __version__

project, release = "docemb", __version__
root_doc = "README"
include_patterns = ["README.md", "SECURITY.md", "CHANGELOG.md", "docs/**", "outputs/published/**"]
exclude_patterns = [
    "site",
    "outputs/[!p]*",
    ".*",
]  # folders that may be large, not even searched
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
default_role = "code"  # for the `names` of docstrings, written as in Markdown
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
highlight_language = "none"  # of literal blocks in docstrings, which are formulas
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_title = "docemb"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False

CONTENTS = """
```{toctree}
:hidden:
:caption: Guide

docs/own-documents
docs/notebooks
docs/profiles
docs/data
docs/training
docs/sweeps
docs/evaluation
docs/thesis
docs/sources
docs/extending
docs/design
Security <SECURITY>
CHANGELOG
```

```{toctree}
:hidden:
:caption: Results

Gallery <docs/gallery>
Findings <outputs/published/README>
Embedded default <outputs/published/embedded/README>
MPNet on Wikipedia <outputs/published/embedded/mpnet>
Contextual losses <outputs/published/contextual-losses>
How much a model reads <outputs/published/reading>
Log of experiments <outputs/published/LOG>
Executed notebooks <outputs/published/notebooks/README>
```

```{toctree}
:hidden:
:caption: Archive
:glob:

outputs/published/archive/*
outputs/published/archive/*/*
```

```{toctree}
:hidden:
:caption: API

docs/api/student
docs/api/teachers
docs/api/losses
docs/api/evaluation
docs/api/runs
docs/api/notebooks
```
"""


def edit_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to pages what GitHub, which shows them too, would not understand."""
    if page == root_doc:
        # Browsers would load Mermaid from a network; "How it is built" says in words what the
        # diagram shows.
        source[0] = re.sub(r"```mermaid\n.*?```\n", "", source[0], flags=re.DOTALL) + CONTENTS


def leave_out(
    app: Sphinx, kind: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out the fields of named tuples, to which Python gives a docstring; `describe_fields`
    has them.
    """
    return (
        True
        if (getattr(member, "__doc__", None) or "").startswith("Alias for field number")
        else None
    )


# A field in the body of a class: lines of comments, its name, its type and default, a comment
# beside it.
FIELD = re.compile(r"^((?:    # .*\n)*)    (\w+): (.+?)(?:  # (.+))?$", flags=re.MULTILINE)


def describe_fields(
    app: Sphinx, kind: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    """Add the fields of data classes, which are described by comments; of settings with types and
    defaults.
    """
    if not (kind == "class" and (is_dataclass(item) or issubclass(item, (BaseModel, tuple)))):
        return
    body = inspect.getsource(item).split("\n    def ")[0].split("\n    @")[0]
    for above, field, declaration, beside in FIELD.findall(body.rpartition('"""')[2]):
        comment = re.sub(
            r"[*|]", r"\\\g<0>", " ".join([*re.findall(r"# (.*)", above), beside]).strip()
        )
        parts = [f"``{declaration}``"] if issubclass(item, BaseModel) else []
        if parts or comment:
            lines.append(f":param {field}: {': '.join([*parts, *filter(None, [comment])])}")


def shorten(
    app: Sphinx,
    kind: str,
    name: str,
    item: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> Any:
    """Shorten names of types.

    Leave out the signatures of settings, whose fields are listed, and torch's own.
    """
    if signature is None:
        return None
    short = re.sub(r"~(?:\w+\.)+", "", signature).replace("<factory>", "...")
    hidden = kind == "class" and (
        issubclass(item, BaseModel) or short == "(*args: Any, **kwargs: Any)"
    )
    return "" if hidden else short, returns


def add_files(app: Sphinx, error: Exception | None) -> None:
    """Lead from index.html to the first page."""
    if error is None:
        Path(app.outdir, "index.html").write_text(
            f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        )


def setup(app: Sphinx) -> None:
    app.connect("source-read", edit_page)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", describe_fields, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", shorten)
    app.connect("build-finished", add_files)
