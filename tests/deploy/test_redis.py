"""The Redis of compose.yaml, started here by the same script with the same configuration."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick.approvals import create
from tallystick.core.errors import StoreError
from tallystick.jobs.checks.exposure import worker_rules
from tallystick.jobs.checks.finding import Severity
from tallystick.jobs.doctor import consult
from tallystick.jobs.embedded import server_program
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.store import Store
from tests.server import actions
from tests.server.conftest import ACTIONS, eventually
from tests.server.test_topologies import free_port

pytestmark = pytest.mark.server

REDIS = Path(__file__).parents[2] / "deploy" / "redis"
PASSWORD = "p@ss/word #1"


@dataclass
class Deployed:
    """The server, and how a worker finds it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://tallystick@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        own = [self.folder / "password", self.folder / "users", REDIS / "redis.conf"]
        here = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", str(REDIS / "start.sh"), *map(str, own), *here],
                env={"PATH": f"{self.folder}:{os.environ['PATH']}"},
                stdout=log,
                stderr=log,
            )
        eventually(self.answers, "the server answers")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(StoreError):
            store = Store.connect(str(self.settings().store_url), "tallystick", timeout=1)
            with contextlib.closing(store):
                store.ping()
                return True
        return False

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait(10)

    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def settings(self, **given: object) -> Settings:
        return Settings.load(
            redis_url=self.url,
            redis_password_file=self.folder / "password",
            data_dir=self.folder / "data",
            actions=(ACTIONS,),
            **given,
        )


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "redis-server").symlink_to(server_program())
    found = Deployed(tmp_path, free_port())
    found.start()
    yield found
    found.kill()


def test_the_doctor_is_content_with_every_part_of_it(deployed: Deployed) -> None:
    create(deployed.folder / "approver")
    keys = deployed.folder / "worker"
    keys.mkdir(mode=0o700)
    (keys / "trusted.json").write_bytes((deployed.folder / "approver/trusted.json").read_bytes())
    report = consult(deployed.settings(key_dir=keys))
    assert [one for one in report.findings if one.severity is not Severity.OK] == []


def test_the_users_of_the_server_are_those_that_the_doctor_names(deployed: Deployed) -> None:
    told = (deployed.folder / "users").read_text().splitlines()
    assert told[0] == "user default off resetpass ~* &* +@all"
    name, on, hashed, *rules = told[1].removeprefix("user ").split()
    assert (name, on, hashed[0]) == ("tallystick", "on", "#")
    assert " ".join(rules) == " ".join(worker_rules("tallystick"))
    assert len(told) == 2


def test_the_password_is_written_nowhere_and_asked_of_everybody(deployed: Deployed) -> None:
    users = deployed.folder / "users"
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert PASSWORD not in users.read_text()
    stranger = Store.connect(deployed.url.replace("tallystick@", ""), "tallystick", timeout=1)
    with contextlib.closing(stranger), pytest.raises(StoreError, match="authenticated"):
        stranger.ping()


def test_a_worker_takes_work_there(deployed: Deployed) -> None:
    with actions.target():
        pass
    settings = deployed.settings()
    env = os.environ | {
        "TALLYSTICK_REDIS_URL": deployed.url,
        "TALLYSTICK_REDIS_PASSWORD_FILE": str(settings.redis_password_file),
        "TALLYSTICK_DATA_DIR": str(settings.data_dir),
        "TALLYSTICK_ACTIONS": ACTIONS,
    }
    with Tallystick.from_settings(settings) as tally:
        found = tally.propose("item.readable", {"item": "a", "value": "new"}, key="a", by="erin")
        tally.approve(found.id, by="dana")
        command = [sys.executable, "-m", "tallystick", "worker", "--burst"]
        ended = subprocess.run(command, env=env, timeout=60, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert tally.wait(found.id, timeout=20).state == "committed"
    assert actions.effects("a") == 1
    assert PASSWORD not in json.dumps(ended.stdout + ended.stderr)


def test_what_was_acknowledged_is_there_after_a_kill(deployed: Deployed) -> None:
    settings = deployed.settings()
    with Tallystick.from_settings(settings) as tally:
        found = tally.propose("item.readable", {"item": "a", "value": "new"}, key="a", by="erin")
        approved = tally.approve(found.id, by="dana")
    deployed.kill()
    deployed.start()
    assert "error" not in deployed.log()
    with Tallystick.from_settings(settings) as tally:
        assert tally.get(found.id) == approved
