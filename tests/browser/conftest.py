"""JupyterLab on a free port and Chromium, started once per module; each notebook is opened once, in
order.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXTS

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
NO_BROWSER = "no browser: `apt-get install chromium` (Debian, Ubuntu), or any Chromium on the PATH"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SHOWN = ".jp-NotebookPanel:not(.lm-mod-hidden)"  # the visible notebook
MINUTE = 60_000.0  # milliseconds
SETTINGS: dict[str, dict[str, Any]] = {  # of JupyterLab: no dialogs; all cells are rendered
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none", "scrollPastEnd": False},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


class Lab:
    def __init__(self, port: int) -> None:
        self.port, self.token = port, secrets.token_hex(16)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}{'&' if '?' in path else '?'}token={self.token}"

    def api(self, path: str, method: str = "GET", content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url(f"api/{path}"), data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def answers(self) -> bool:
        try:
            self.api("status")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


class OpenNotebook:
    def __init__(self, page: Any, lab: Lab, path: str) -> None:
        """Open the file with the kernel of the one before, whose imports took seconds."""
        self.page = page
        for session in lab.api("sessions"):
            lab.api(f"sessions/{session['id']}", "PATCH", {"path": path})
        page.goto(lab.url(f"lab/tree/{path}?reset"))
        ready = """path => {
            const panel = window.jupyterapp?.shell?.currentWidget;
            return panel?.context?.path === path && panel.context.isReady
                && panel.sessionContext.session?.kernel?.status === "idle";
        }"""
        page.wait_for_function(ready, arg=path, timeout=2 * MINUTE)

    def command(self, name: str, **arguments: Any) -> None:
        self.page.evaluate(
            "([name, options]) => window.jupyterapp.commands.execute(name, options)",
            [name, arguments],
        )

    def run_all(self) -> None:
        self.page.set_default_timeout(5 * MINUTE)
        self.kernel("%reset -f\nimport overlaps; overlaps.watch()")
        self.command("notebook:run-all-cells")

    def kernel(self, code: str) -> str:
        """Run code in the kernel of the notebook and return the printed text."""
        run = """async code => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const future = kernel.requestExecute({code, store_history: false});
            const printed = [];
            future.onIOPub = ({content}) => printed.push(content.text ?? "");
            const {content} = await future.done;
            if (content.status !== "ok") throw new Error(`${content.ename}: ${content.evalue}`);
            return printed.join("");
        }"""
        return str(self.page.evaluate(run, code))

    def cells(self) -> list[dict[str, Any]]:
        """The code cells with their outputs."""
        shown = "() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells"
        return [cell for cell in self.page.evaluate(shown) if cell["cell_type"] == "code"]

    def use_theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)

    def choose(self, description: str, label: str) -> None:
        control = f'.widget-inline-hbox:has(> label:text-is("{description}"))'
        self.page.locator(f"{SHOWN} {control} select").select_option(label=label)

    def shows(self, selector: str, text: str) -> None:
        """Wait until the first matching element has this text."""
        from playwright.sync_api import expect

        expect(self.page.locator(f"{SHOWN} {selector}").first).to_have_text(text, timeout=10_000)

    def too_wide(self) -> list[str]:
        """Outputs wider than the page, by their first characters."""
        wide = """shown => [...document.querySelectorAll(`${shown} .jp-OutputArea-output`)]
            .filter(one => one.scrollWidth > one.clientWidth + 1)
            .map(box => `${box.scrollWidth} > ${box.clientWidth}: ${box.innerText.slice(0, 99)}`)"""
        return list(self.look(wide))

    def look(self, script: str) -> Any:
        """What a function answers to the selector of the visible notebook."""
        return self.page.evaluate(script, SHOWN)

    def figures(self) -> list[bytes]:
        """A picture of each figure as the page shows it, as PNG."""
        shown = self.page.locator(f"{SHOWN} .jp-OutputArea-output img").all()
        return [figure.screenshot(animations="disabled") for figure in shown]


@pytest.fixture(scope="module")
def lab(whole_run, tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab in a workspace of finished runs; the profile that notebooks are opened with is
    the test profile.
    """
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    home = tmp_path_factory.mktemp("jupyterlab")
    root = Path(shutil.copytree(whole_run[0], home / "workspace", symlinks=True))
    shutil.copy(TEXTS / "small.yaml", root / "params" / "tiny.yaml")
    for name, values in SETTINGS.items():
        file = home / "config" / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        served = Lab(free.getsockname()[1])
    environment = {**os.environ}
    for name in ("CONFIG", "DATA", "RUNTIME"):
        environment[f"JUPYTER_{name}_DIR"] = str(home / name.lower())
    environment.pop("MPLBACKEND", None)  # notebooks use the inline backend
    tests = Path(__file__).parents[1]  # for overlaps
    environment["PYTHONPATH"] = f"{tests}{os.pathsep}{environment['PYTHONPATH']}"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={served.port}",
        "--allow-root",
        f"--IdentityProvider.token={served.token}",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
    ]
    log = home / "jupyterlab.log"
    with log.open("w", encoding="utf-8") as file:
        server = subprocess.Popen(
            command, cwd=root, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        while not served.answers():
            assert server.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.25)
        yield served
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.fixture(scope="module")
def browser(lab, tmp_path_factory) -> Iterator[Any]:
    """A browser with an empty profile, closed after the module: while it is open, no test can run
    an event loop.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason='no playwright: `pip install -e ".[dev]"`'
    )
    with playwright.sync_playwright() as driver:
        options = {
            "headless": True,
            "args": list(FLAGS),
            "viewport": {"width": 1280, "height": 2000},  # no figure is cut off
        }
        folder = str(tmp_path_factory.mktemp("browser"))
        yield driver.chromium.launch_persistent_context(folder, executable_path=CHROMIUM, **options)


@pytest.fixture(scope="module")
def notebook(request, lab, browser) -> Iterator[OpenNotebook]:
    """The notebook with this name after running all cells, in one kernel for all."""
    page = browser.new_page()
    opened = OpenNotebook(page, lab, f"notebooks/{request.param}.ipynb")
    opened.run_all()
    yield opened
    page.close()
