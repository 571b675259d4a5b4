"""JupyterLab and Chromium, started once per module; each notebook is opened and run once, in order."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from conftest import TEXTS, make_workspace
from lab import FLAGS, NO_BROWSER, Lab, OpenNotebook, chromium, running_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab in a workspace of its own, whose `tiny`, the notebooks' default, is the test profile."""
    if chromium() is None:
        pytest.skip(NO_BROWSER)
    home = tmp_path_factory.mktemp("jupyterlab")
    root = make_workspace(home / "workspace")
    shutil.copy(TEXTS / "small.yaml", root / "params" / "tiny.yaml")
    with running_lab(root, home) as running:
        yield running


@pytest.fixture(scope="module")
def browser(lab, tmp_path_factory) -> Iterator[Any]:
    """A browser with an empty profile, closed after the module: while it is open, no test can run an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason='no playwright: `pip install -e ".[dev]"`')
    with playwright.sync_playwright() as driver:
        options = {"headless": True, "args": list(FLAGS), "viewport": {"width": 1280, "height": 900}}
        folder = str(tmp_path_factory.mktemp("browser"))
        yield driver.chromium.launch_persistent_context(folder, executable_path=chromium(), **options)


@pytest.fixture(scope="module")
def notebook(request, lab, browser) -> Iterator[OpenNotebook]:
    """The notebook with this name after running all cells; the kernel ends after the last test that uses the fixture."""
    page = browser.new_page()
    opened = OpenNotebook(page, lab, f"notebooks/{request.param}.ipynb")
    opened.run_all()
    yield opened
    page.close()
    for session in lab.api("sessions"):
        lab.api(f"sessions/{session['id']}", "DELETE")


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory) -> Path:
    """Folder for screenshots of the pages: DOCEMB_SCREENSHOTS, or a temporary folder."""
    return Path(os.environ.get("DOCEMB_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
