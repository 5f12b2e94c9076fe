"""What the tests of rules share: the shipped files, read once, and the programs that judge them."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tallystick.metrics.shipped import RULES, shipped

TEXTS = shipped()
GROUPS: dict[str, list[dict[str, Any]]] = {
    name: yaml.safe_load(TEXTS[name])["groups"] for name in RULES
}
EVERY_RULE: list[dict[str, Any]] = [
    rule for groups in GROUPS.values() for group in groups for rule in group["rules"]
]
ALERTS = [rule for rule in EVERY_RULE if "alert" in rule]
RECORDS = [rule for rule in EVERY_RULE if "record" in rule]
BY_NAME = {alert["alert"]: alert for alert in ALERTS}
RECORDED = {rule["record"] for rule in RECORDS}

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "redis-cli": "redis-tools",
    "curl": "curl",
}


def program(name: str) -> str:
    """The path of a program. A newcomer's machine may be without it, CI may not."""
    found = shutil.which(name) or shutil.which(name.removeprefix("prometheus-"))
    if found is None:
        unproved = f"{name} is missing, so this is unproved: apt-get install {PACKAGES[name]}"
        if os.environ.get("CI"):
            pytest.fail(unproved)
        pytest.skip(unproved)
    return found


def run(name: str, *arguments: str, cwd: Path, stdin: str | None = None) -> str:
    """Run a program and return what it says; a verdict against us fails the test."""
    done = subprocess.run(
        [program(name), *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def write_shipped(folder: Path, **replaced: Any) -> None:
    """The shipped files, as `tallystick rules --to` writes them."""
    for name, text in shipped(**replaced).items():
        (folder / name).write_text(text, "utf-8")
