"""The command line as people use it: real processes on the embedded server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tallystick.jobs.embedded import EmbeddedServer
from tests.server import actions

PARAMS = '{"item": "a", "value": "new"}'


@dataclass
class Shell:
    """Runs commands with one data folder and one target."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        env = os.environ | {
            "TALLYSTICK_DATA_DIR": str(self.folder),
            "TALLYSTICK_ACTIONS": "tests.server.actions,tests.server.other_actions",
            "TARGET_DIR": str(self.folder),
            "COLUMNS": "100",
        }
        return subprocess.run(
            [sys.executable, "-m", "tallystick", *words],
            env=env | self.extra,
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def json(self, *words: str, stdin: bytes = b"", status: int = 0) -> Any:
        found = self.run(*words, "--json", stdin=stdin)
        assert found.returncode == status, found.stderr.decode()
        return json.loads(found.stdout)

    def refused(self, *words: str, stdin: bytes = b"", status: int = 1) -> str:
        """What a command that is refused says, which is one line without a traceback."""
        found = self.run(*words, stdin=stdin)
        said = found.stderr.decode()
        assert found.returncode == status, found.stdout.decode() + said
        assert "Traceback" not in said
        if status == 1:
            assert said.startswith("error: ")
            assert said.count("\n") == 1, said
        return said

    def propose(self, key: str = "k", params: str = PARAMS, name: str = "item.readable") -> Any:
        return self.json("propose", name, "--params", params, "--key", key, "--by", "producer")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    with actions.target():
        pass
    with EmbeddedServer.join(tmp_path):  # kept up, so that each command is quick
        yield Shell(tmp_path)
