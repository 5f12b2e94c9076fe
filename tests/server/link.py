"""A bad network: a link between workers and their server (or a replica and its primary) that can be
slow, fall silent in either direction, or be cut."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_CHUNK = 1 << 16

Address = str | tuple[str, int]
"""The path of a unix socket, or a host and port."""


def _socket(address: Address) -> socket.socket:
    return socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)


@dataclass
class Link:
    """Listens on `front` (port 0: any) and forwards to `back`, until it is closed."""

    front: Address
    back: Address
    delay: Callable[[], float] = lambda: 0.0
    """Seconds by which each message is late, in each direction."""
    _open: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._there, self._here = threading.Event(), threading.Event()
        self._whole = True
        self.flow()
        self._listener = _socket(self.front)
        self._listener.bind(self.front)
        self._listener.listen(64)
        self._start(self._accept)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    # --- the weather -----------------------------------------------------------------------------

    def flow(self) -> None:
        """Let everything through."""
        self._whole = True
        self.delay = lambda: 0.0
        self._there.set()
        self._here.set()

    def slow(self, most: float, *, seed: int) -> None:
        """Be late by a random time up to `most` seconds, each way."""
        chance = random.Random(seed)
        self.delay = lambda: chance.uniform(0, most)

    def silence(self, *, there: bool = True, here: bool = True) -> None:
        """Keep what is sent `there` (to the back) or `here` (to the front), as a network does that
        swallows packets: nobody is told."""
        for flag, gate in ((there, self._there), (here, self._here)):
            if flag:
                gate.clear()

    def cut(self) -> None:
        """Break every connection, and refuse new ones until `flow`."""
        self._whole = False
        self._break_all()

    def close(self) -> None:
        """Break every connection, and listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.flow()
        self._break_all()
        for thread in list(self._threads):
            thread.join(5)

    # --- inside ----------------------------------------------------------------------------------

    def _break_all(self) -> None:
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _start(self, run: Callable[..., None], *given: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                front, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, front)

    def _serve(self, front: socket.socket) -> None:
        with front, _socket(self.back) as back:
            try:
                if not self._whole:
                    return
                back.connect(self.back)
                for one in (front, back):
                    if one.family == socket.AF_INET:  # as servers do: no 40 ms by accident
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                return
            with self._lock:
                self._open |= {front, back}
            here = self._start(self._pump, back, front, self._here)
            self._pump(front, back, self._there)
            here.join()
            with self._lock:
                self._open -= {front, back}

    def _pump(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                time.sleep(self.delay())
                gate.wait()
                sink.sendall(data)
        for side in (source, sink):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
