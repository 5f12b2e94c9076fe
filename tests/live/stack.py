"""Redis, a worker, the exporter, Prometheus and Alertmanager: separate processes on the loopback.

The configuration is the shipped one, as `tallystick rules` writes it; only its clocks run faster.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.metrics.shipped import RECEIVERS, RULES
from tests.live.receiver import Receiver
from tests.metrics.tools import program, run
from tests.server import actions
from tests.server.conftest import Server, eventually

MODULES = "tests.live.actions"

QUICKER = (
    (r"(scrape|evaluation)_interval: \w+", r"\1_interval: 1s"),
    (r"(?m)^        for: \w+$", "        for: 2s"),
    (r"group_wait: \w+", "group_wait: 0s"),
    (r"group_interval: \w+", "group_interval: 1s"),
)
"""What is altered for a test, and nothing else: how long everything waits."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@dataclass
class Stack:
    """Everything that stands between an action and whoever is woken."""

    folder: Path
    server: Server
    receiver: Receiver
    settings: Settings
    tally: Tallystick
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- processes -------------------------------------------------------------------------

    @property
    def redis_url(self) -> str:
        port = self.server.options["port"]
        return self.server.url if port == "0" else f"redis://127.0.0.1:{port}"

    @property
    def env(self) -> dict[str, str]:
        return os.environ | {
            "TALLYSTICK_REDIS_URL": self.redis_url,
            "TALLYSTICK_DATA_DIR": str(self.settings.data_dir),
            "TALLYSTICK_ACTIONS": MODULES,
            "TALLYSTICK_LEASE_SECONDS": str(self.settings.lease_seconds),
            "TARGET_DIR": str(self.folder),
        }

    def start(self, name: str, *command: str) -> None:
        """Start a process that writes its log into the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.env, cwd=self.folder, stdout=log, stderr=log
            )

    def tallystick(self, name: str, *words: str) -> None:
        self.start(name, sys.executable, "-m", "tallystick", *words)

    def kill(self, name: str) -> float:
        """SIGKILL; returns when."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(10)
        return time.time()

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Nothing of this process runs inside."""
        self.processes[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.processes[name].send_signal(signal.SIGCONT)

    # --- what is asked of them -----------------------------------------------------------

    def get(self, name: str, path: str, **given: str) -> Any:
        """An answer of one of the HTTP interfaces, or None while it does not answer."""
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(f"http://127.0.0.1:{self.ports[name]}{path}", params=given)
            if answer.status_code == 200:
                return answer.json() if "json" in answer.headers["content-type"] else answer.text
        return None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query; empty while Prometheus does not answer."""
        answer = self.get("prometheus", "/api/v1/query", query=expression)
        return answer["data"]["result"] if answer else []

    def approved(self, name: str, item: str) -> str:
        found = self.tally.propose(name, {"item": item, "value": "new"}, key=item, by="producer")
        return self.tally.approve(found.id, by="approver").id


@contextlib.contextmanager
def stack(folder: Path, *, redis_port: int = 0) -> Iterator[Stack]:
    """A running one, once its Watchdog has reached the receiver. Redis listens on a unix socket,
    and on a port as well if one is given."""
    prometheus, alertmanager = program("prometheus"), program("prometheus-alertmanager")
    server, receiver = Server(folder, {"port": str(redis_port)}), Receiver()
    settings = Settings.load(
        redis_url=server.url, data_dir=folder / "data", actions=(MODULES,), lease_seconds=2
    )
    ports = {name: free_port() for name in ("exporter", "prometheus", "alertmanager")}
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(receiver.close)
        server.start()
        cleanup.callback(server.stop)
        with actions.target():
            pass
        tally = cleanup.enter_context(Tallystick.from_settings(settings))
        found = Stack(folder, server, receiver, settings, tally, ports)
        cleanup.callback(_end, found)
        write_configuration(found)
        found.tallystick("worker", "worker", "--processes", "2")
        eventually(lambda: tally.store.snapshot().workers == 2, "the workers are alive")
        found.tallystick("exporter", "exporter", "--port", str(ports["exporter"]))
        eventually(lambda: found.get("exporter", "/healthz"), "the exporter answers")
        found.start(
            "alertmanager",
            alertmanager,
            "--config.file=alertmanager.yaml",
            f"--storage.path={folder}/alertmanager",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
            "--cluster.listen-address=",
        )
        eventually(lambda: found.get("alertmanager", "/-/ready"), "Alertmanager is ready")
        found.start(
            "prometheus",
            prometheus,
            "--config.file=prometheus.yaml",
            f"--storage.tsdb.path={folder}/prometheus",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
            "--enable-feature=exemplar-storage",
            # An alert that was raised before Alertmanager was found is sent again only after this.
            "--rules.alert.resend-delay=1s",
        )
        eventually(lambda: receiver.find("Watchdog"), "the Watchdog arrives", seconds=40)
        yield found


def write_configuration(stack: Stack) -> None:
    """What `tallystick rules` writes, with quicker clocks and our ports; checked by its readers."""
    words = ["-m", "tallystick", "rules", "--to", str(stack.folder)]
    for name in RECEIVERS:
        words += ["--receiver", f"{name}={stack.receiver.url(name)}"]
    subprocess.run([sys.executable, *words], env=stack.env, check=True, capture_output=True)
    shipped = {"exporter": 9464, "prometheus": 9090, "alertmanager": 9093}
    for name in (*RULES, "prometheus.yaml", "alertmanager.yaml"):
        text = (stack.folder / name).read_text()
        for pattern, quicker in QUICKER:
            text = re.sub(pattern, quicker, text)
        for process, port in shipped.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{stack.ports[process]}")
        (stack.folder / name).write_text(text)
    run("promtool", "check", "config", "prometheus.yaml", cwd=stack.folder)
    run("amtool", "check-config", "alertmanager.yaml", cwd=stack.folder)


def _end(stack: Stack) -> None:
    for process in stack.processes.values():
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(10)
