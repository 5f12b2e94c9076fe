"""Servers of every kind, and the doctor called as people call it."""

import contextlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from nacl.signing import SigningKey

from tallystick.cli import main
from tests.server.conftest import Launch, command, launch, server, site, valkey

__all__ = ["Launch", "clinic", "command", "launch", "server", "site", "valkey"]


APPROVER = SigningKey(b"a" * 32)


@dataclass
class Told:
    """What the doctor said, by check."""

    status: int
    findings: dict[str, dict[str, Any]]
    text: str

    def severity(self, name: str) -> str:
        return str(self.findings[name]["severity"])

    def found(self, name: str) -> str:
        return str(self.findings[name]["found"])

    def refusing(self) -> set[str]:
        return self.having("refuse", "unknown")

    def having(self, *severities: str) -> set[str]:
        return {name for name, one in self.findings.items() if one["severity"] in severities}


@dataclass
class Clinic:
    """A worker's machine: a folder with the approvers' public keys, and the doctor."""

    folder: Path

    def env(self, url: str | None, **given: str | None) -> dict[str, str]:
        """The environment of the command, with these settings (in lower case) besides."""
        all_given: dict[str, str | None] = {
            "data_dir": str(self.folder / "data"),
            "key_dir": str(self.folder / "keys"),
            "redis_url": url,
        }
        inherited = {name: value for name, value in os.environ.items() if "TALLYSTICK" not in name}
        return inherited | {
            f"TALLYSTICK_{name.upper()}": value
            for name, value in (all_given | given).items()
            if value
        }

    def run(self, url: str | None, *flags: str, **given: str | None) -> tuple[int, str, str]:
        """Call the command in this process: its status, and what it wrote to its two outputs."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.env(url, **given), clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = main(["doctor", *flags])
        return status, out.getvalue(), err.getvalue()

    def doctor(self, url: str | None, **given: str | None) -> Told:
        status, out, err = self.run(url, "--json", **given)
        assert err == ""
        report = json.loads(out)
        assert status == int(report["refuses"])
        findings = {finding["name"]: finding for finding in report["findings"]}
        return Told(status, findings, out)


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    (folder / "trusted.json").write_text(json.dumps({"a": bytes(APPROVER.verify_key).hex()}))
    return Clinic(tmp_path)
