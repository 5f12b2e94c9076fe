"""One call to Redis: its scripts, its repetition after a lost reply, its errors in our words.

With replicas, whatever somebody relies on is *settled*: the same connection that wrote waits until
it is on this disk and theirs (WAITAOF), in the same round trip. On another connection, inside
MULTI or inside Lua the answer would be a false yes (measured), and so it would be for a repeated
script that finds its work done: so each barrier comes after a write of its own.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Self

from tallystick.core.errors import NotReplicated, StoreReadOnly, StoreRefused
from tallystick.jobs.connection import (
    Client,
    LinkDown,
    Refusal,
    Unloaded,
    connect,
    one_line,
    safe_url,
    translated_errors,
)
from tallystick.jobs.keys import Keys
from tallystick.metrics import counters

_PAUSE_SECONDS = (0.05, 0.25)
_BARRIER_SECONDS = 2.0
_NOTHING_WRITTEN = {"refused", "missing", "malformed"}
"""Answers of a script that need no barrier."""


def await_replicas(connection: Any, replicas: int, seconds: float) -> Any:
    """Wait until what this connection wrote last is on this disk and on those of so many replicas.

    The answer to the last command sent is the numbers of both. WAIT comes first because a replica
    answers WAITAOF's question before its fsync, and then not again for a second (measured: 1006 ms
    alone, 6 ms after a WAIT); what WAIT says itself is of no account.
    """
    milliseconds = int(seconds / 2 * 1000)
    connection.execute_command("WAIT", replicas, milliseconds)
    return connection.execute_command("WAITAOF", 1, replicas, milliseconds)


class Wire:
    """The connection of one namespace, and every script by its name.

    Every script is idempotent for the same arguments, so a call whose reply was lost is repeated.
    """

    patience: float = _BARRIER_SECONDS
    """How long a barrier may take, in seconds: well within the time-out of the connection."""
    connections = 0
    """How many there have been."""
    unsettled = False
    """The last barrier was not reached, so what was written before it may be lost."""

    def __init__(
        self, client: Client, namespace: str, *, url: str = "redis", replicas: int = 0
    ) -> None:
        self.keys = Keys(namespace)
        self.replicas = replicas
        self._client = client
        self._url = url
        lua = files("tallystick.jobs") / "lua"
        common = (lua / "common.lua").read_text()
        self._scripts = {
            name: client.register_script(common + (lua / f"{name}.lua").read_text())
            for name in (
                "heartbeat",
                "history",
                "inspect",
                "move",
                "propose",
                "quarantine",
                "read",
                "release",
                "renew",
                "rewound",
                "stop",
                "sweep",
            )
        }

    @classmethod
    def connect(cls, url: str, namespace: str, *, timeout: float = 5, replicas: int = 0) -> Self:
        """The store at this URL; nothing is sent yet. `timeout` bounds each command, in seconds;
        `replicas` is how many must have on disk what is settled."""
        made: list[Self] = []
        client = connect(
            url,
            timeout=timeout,
            retries=False,
            decode=True,
            connected=lambda: made[0].note_connection(),
        )
        wire = cls(client, namespace, url=safe_url(url), replicas=replicas)
        wire.patience = min(_BARRIER_SECONDS, timeout / 2)
        made.append(wire)
        return wire

    def note_connection(self) -> None:
        """There is a new connection: it may lead to a server that knows less."""
        self.connections += 1

    @property
    def url(self) -> str:
        """Where the server is, without credentials."""
        return self._url

    def ping(self) -> None:
        """Raise a `StoreError` unless the server answers."""
        with self._errors():
            self._client.ping()

    def shut_down(self) -> None:
        """End the server, which writes everything first. Raises a `StoreError` if it refuses."""
        with self._errors():
            self._client.shutdown()

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def confirm(self) -> None:
        """Wait until all that was written before, by whomever, is on the replicas' disks. One trip
        with replicas, none without. Raises `NotReplicated`."""
        if self.replicas:
            with self._errors():
                self._past_the_barrier(lambda pipe: None)

    def _script(
        self, name: str, keys: Sequence[str], args: Sequence[Any], *, settled: bool = False
    ) -> Any:
        """Run a script; if it is to be `settled`, it is on the replicas' disks when this returns.

        Raises `NotReplicated` if that is not known within the patience: what the script wrote
        stays, and a repetition, which finds it done, waits anew.
        """
        script = self._scripts[name]
        with self._errors():
            if not (settled and self.replicas):
                return self._repeat(lambda: script(keys=keys, args=args))

            def write(pipe: Any) -> None:
                pipe.evalsha(script.sha, len(keys), *keys, *args)

            try:
                return self._past_the_barrier(write)
            except Unloaded:
                self._repeat(lambda: self._client.script_load(script.script))
                return self._past_the_barrier(write)

    def _past_the_barrier(self, write: Callable[[Any], None]) -> Any:
        def ask() -> list[Any]:
            pipe: Any = self._client.pipeline(transaction=False)
            write(pipe)
            pipe.hincrby(self.keys.counters, counters.BARRIERS, 1)
            await_replicas(pipe, self.replicas, self.patience)
            return list(pipe.execute(raise_on_error=False))

        *replies, counted, _, reached = self._repeat(ask)
        for reply in replies:
            if isinstance(reply, Refusal):
                raise reply
            if reply[0] in _NOTHING_WRITTEN:
                return reply
        problem = self._shortfall(counted, reached)
        self.unsettled = bool(problem)
        if problem:
            with contextlib.suppress(*LinkDown, Refusal):
                self._client.hincrby(self.keys.counters, counters.BARRIERS_MISSED, 1)
            raise NotReplicated(url=self._url, wanted=self.replicas, problem=problem)
        return replies[0] if replies else None

    def _shortfall(self, counted: Any, reached: Any) -> str:
        """Why the barrier was not reached; empty if it was. Both numbers count: a server answers
        with what it has when the time is over, and the write stays."""
        for answer in (counted, reached):
            if isinstance(answer, Refusal):
                return one_line(answer)
        local, replicas = reached
        if local < 1:
            return "it is not on the disk of the primary itself"
        if replicas < self.replicas:
            return f"{replicas} of {self.replicas} within {self.patience:g} s"
        return ""

    def _foreign(self, key: str) -> StoreRefused:
        return StoreRefused(url=self._url, problem=f"the key {key} is of a foreign type")

    def _whole(self, field: str, text: str | None) -> int:
        """A counter as a number. Raises `StoreRefused` if somebody made it something else."""
        if text is None or text.isdecimal():
            return int(text or 0)
        problem = f"the counter {field!r} holds {text[:40]!r}, which is no number"
        raise StoreRefused(url=self._url, problem=problem)

    def _together(self, commands: Callable[[Any], object]) -> list[Any]:
        """Several reading commands in one trip; made anew for each try, since a pipeline that
        failed is empty."""

        def ask() -> list[Any]:
            pipe = self._client.pipeline(transaction=True)
            commands(pipe)
            return list(pipe.execute())

        return list(self._repeat(ask))

    def _repeat(self, call: Callable[[], Any]) -> Any:
        for pause in (*_PAUSE_SECONDS, None):
            try:
                return call()
            except LinkDown:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with translated_errors(self._url):
                yield
        except StoreReadOnly:  # its name may lead to another server by now: look again
            self._client.connection_pool.disconnect(inuse_connections=False)
            raise
