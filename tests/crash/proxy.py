"""A proxy on a unix socket, between workers and their server. It counts the commands of one process
and strikes at the n-th: before it is forwarded, or after it ran, swallowing the reply."""

import contextlib
import os
import select
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.wiretap import describe

GREETING = frozenset({"HELLO", "CLIENT"})
"""What a new connection begins with; it is not counted."""

_CHUNK = 1 << 16
_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to strike: at the n-th command of a work-horse (or, with `parent`, of its parent)
    since the action was first named to it, or at the first that is so labelled."""

    at: int | str
    after: bool
    strike: Callable[[int], None]
    """Called with the pid that sent the command."""
    parent: bool = False
    hold: bool = False
    """Keep the command (or its reply) until `go_on`, instead of breaking the link."""


@dataclass
class Proxy:
    """Listens on `front` and forwards to `back`."""

    front: Path
    back: Path
    scripts: Mapping[str, str]
    parents: set[int] = field(default_factory=set)
    """The pids of worker parents; whoever else connects is a work-horse."""
    struck: list[str] = field(default_factory=list)
    last: dict[int, str] = field(default_factory=dict)
    """The last command of each process that is connected."""
    seen: list[str] = field(default_factory=list)
    """The commands that were counted."""
    refused: int = 0
    """How often the server was not there."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts: deque[Cut] = deque()
        self._about = b""
        self._begun: set[int] = set()
        self._links: Counter[int] = Counter()
        self.held, self.go_on = threading.Event(), threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.front))
        self._socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def arm(self, about: str, cuts: list[Cut]) -> None:
        """Count the commands that concern this action, and strike where the cuts say."""
        with self._lock:
            self._about, self._cuts = about.encode(), deque(cuts)
            self._begun.clear()
            self.struck, self.seen = [], []
            self.held.clear()
            self.go_on.clear()

    def disarm(self) -> None:
        """Strike no more."""
        with self._lock:
            self._cuts.clear()
            self._about = b""

    def horses(self) -> list[int]:
        """The pids of the work-horses that are connected."""
        with self._lock:
            return [pid for pid, links in self._links.items() if links and pid not in self.parents]

    # --- inside ----------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        pid = _peer(client)
        back = socket.socket(socket.AF_UNIX)
        with client, back:
            try:
                back.connect(str(self.back))
            except OSError:
                self.refused += 1
                return
            with self._linked(pid), contextlib.suppress(OSError):
                self._pump(pid, client, back)

    @contextlib.contextmanager
    def _linked(self, pid: int) -> Iterator[None]:
        with self._lock:
            self._links[pid] += 1
        try:
            yield
        finally:
            with self._lock:
                self._links[pid] -= 1

    def _pump(self, pid: int, client: socket.socket, back: socket.socket) -> None:
        pending = b""
        while True:
            ready, _, _ = select.select([client, back], [], [])
            if back in ready:
                if not (reply := back.recv(_CHUNK)):
                    return
                self._named(pid, reply)
                client.sendall(reply)
            if client in ready:
                if not (data := client.recv(_CHUNK)):
                    return
                request, pending = split(pending + data)
                if request and not self._forward(pid, request, client, back):
                    return

    def _forward(
        self, pid: int, request: bytes, client: socket.socket, back: socket.socket
    ) -> bool:
        """Pass a request on, and strike if it is its turn; whether the link lives on."""
        cut = self._counted(pid, request)
        if cut and not cut.after:
            self._strike(cut, pid)
            if not cut.hold:
                return False
        back.sendall(request)
        if cut and cut.after:
            reply = back.recv(_CHUNK)
            self._strike(cut, pid)
            if not cut.hold:
                return False
            client.sendall(reply)
        return True

    def _strike(self, cut: Cut, pid: int) -> None:
        cut.strike(pid)
        if cut.hold:
            self.held.set()
            assert self.go_on.wait(_PATIENCE_SECONDS), "nobody let the held command go on"

    def _named(self, pid: int, data: bytes) -> None:
        with self._lock:
            if self._about and self._about in data:
                self._begun.add(pid)

    def _counted(self, pid: int, request: bytes) -> Cut | None:
        """The cut whose turn it is."""
        label = describe(request, self.scripts)
        with self._lock:
            self.last[pid] = label
            if self._about and self._about in request:
                self._begun.add(pid)
            coming = self._cuts[0] if self._cuts else None
            mine = (pid in self.parents) == (coming.parent if coming else False)
            begun = pid in self._begun or pid in self.parents
            if not self._about or not mine or not begun or label in GREETING:
                return None
            self.seen.append(label)
            if coming is None or coming.at not in {len(self.seen), label}:
                return None
            self._cuts.popleft()
            self._begun.clear()
            self.seen.clear()
            self.struck.append(f"{'after' if coming.after else 'before'} {label}")
            return coming


def split(data: bytes) -> tuple[bytes, bytes]:
    """The whole requests at the beginning of the data, and what is left."""
    at = 0
    while (end := _end_of_request(data, at)) is not None:
        at = end
    return data[:at], data[at:]


def _end_of_request(data: bytes, at: int) -> int | None:
    """Where the request that begins here ends; None if it is not all there."""
    if data[at : at + 1] != b"*" or (line := data.find(b"\r\n", at)) < 0:
        return None
    parts, at = int(data[at + 1 : line]), line + 2
    for _ in range(parts):
        if (line := data.find(b"\r\n", at)) < 0:
            return None
        at = line + 2 + int(data[at + 1 : line]) + 2
    return at if at <= len(data) else None


def _peer(client: socket.socket) -> int:
    """The pid of the process that connected."""
    given = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", given)[0]
    return pid if pid else os.getpid()
