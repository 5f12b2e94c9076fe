"""examples/bank works where a team has copied it to: its tests, and the commands of its README."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

EXAMPLE = Path(__file__).parents[2] / "examples" / "bank"


@pytest.fixture
def copied() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:  # a socket's path is short
        yield Path(
            shutil.copytree(
                EXAMPLE, Path(folder, "bank"), ignore=shutil.ignore_patterns("__pycache__", "*.db*")
            )
        )


def run(command: list[str], folder: Path) -> str:
    """Run it there as a user would; what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TALLYSTICK")}
    venv = Path(sys.executable).parent
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean
        | {"PATH": f"{venv}:{clean['PATH']}", "TALLYSTICK_DATA_DIR": str(folder.parent / "data")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_its_tests_pass(copied: Path) -> None:
    assert "passed" in run([sys.executable, "-m", "pytest", "-q", "test_bank.py"], copied)


@pytest.mark.server
def test_the_commands_of_its_readme_move_the_money_once(copied: Path) -> None:
    blocks = [
        token.content
        for token in MarkdownIt().parse((copied / "README.md").read_text())
        if token.type == "fence" and token.info == "sh" and "pip install" not in token.content
    ]
    printed = run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], copied)
    assert "committed" in printed
    assert "already belongs to action" in printed
    shown = run([sys.executable, "bank.py", "show"], copied)
    assert shown.split() == ["alice", "60.00", "bob", "40.00"]
