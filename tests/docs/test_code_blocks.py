"""What the pages show is run: each Python block, and the shell of the README and quickstart."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, PAGES, README, blocks, name_of

FILE_NAME = re.compile(r"# (\w+\.py)\n")
"""A block whose first line is a comment with a file's name is that file."""


def save_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows, as its reader would."""
    for _, code in blocks(page, "python"):
        if named := FILE_NAME.match(code):
            (folder / named[1]).write_text(code)


def pages_with(language: str) -> list[Any]:
    """The pages that have such blocks; one that opens a Tallystick needs a server."""
    return [
        pytest.param(
            page,
            id=name_of(page),
            marks=[pytest.mark.server] if "from_settings(" in page.read_text() else [],
        )
        for page in PAGES
        if blocks(page, language)
    ]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's empty folder, with nobody's settings and a data folder of its own."""
    for name in [name for name in os.environ if name.startswith("TALLYSTICK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TALLYSTICK_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield folder
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.mark.parametrize("page", pages_with("python"))
def test_every_python_block_runs_and_its_assertions_hold(page: Path, empty_folder: Path) -> None:
    save_files(page, empty_folder)
    space: dict[str, Any] = {"__name__": "page"}
    ran = 0
    for line, code in blocks(page, "python"):
        exec(compile("\n" * line + code, str(page), "exec"), space)  # noqa: S102 - our own pages
        ran += 1
    assert ran > 0


def test_a_page_about_python_shows_both_forms_of_an_action_type() -> None:
    shown = "\n".join(code for _, code in blocks(DOCS / "howto/write-an-action.md", "python"))
    assert re.search(r"^class \w+\(Action\):$", shown, re.MULTILINE)
    assert re.search(r"^@action\($", shown, re.MULTILINE)


# --- the shell, for real ---------------------------------------------------------------------


def run_as_reader(page: Path, folder: Path) -> str:
    """Run a page's shell blocks in one shell, in a folder with the files that it shows."""
    save_files(page, folder)
    script = "\n".join(code for _, code in blocks(page, "sh") if "make " not in code)
    venv = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=os.environ | {"PATH": f"{venv}:{os.environ['PATH']}", "COLUMNS": "100"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def without_chance(text: str) -> list[str]:
    """The lines, with times, processes and trailing space taken out."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\S+:\d+(?=, token)", "WORKER", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.server
def test_the_example_of_the_readme_runs_and_prints_the_journal_that_it_shows(
    empty_folder: Path,
) -> None:
    [(_, shown)] = blocks(README, "text")
    printed = run_as_reader(README, empty_folder)
    journal = without_chance(printed)[-len(without_chance(shown)) :]
    assert journal == without_chance(shown)


@pytest.mark.server
@pytest.mark.timeout(300)  # some thirty processes, one after the other
def test_the_quickstart_reaches_every_ending_that_it_tells_of(empty_folder: Path) -> None:
    printed = run_as_reader(DOCS / "quickstart.md", empty_folder)
    for told in (
        "the proposer may not approve",
        "already belongs to action",
        "precondition_failed",
        "rollback_failed",
        "It was decided by dana",
    ):
        assert told in printed
    assert re.search(r"rolled_back\W+│ why +bob has his euro back, ticket 4711", printed)
