"""A connection to Redis that tells its worker of every command: before it is sent, and after it
ran but before its reply is read."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from redis.connection import UnixDomainSocketConnection

from tallystick.jobs.connection import connect
from tallystick.jobs.store import Store

_EVENT = re.compile(rb'"event":"(\w+)"')
_SHA = re.compile(rb"\$40\r\n([0-9a-f]{40})\r\n")
_NAME = re.compile(rb"\$\d+\r\n(\w+)\r\n")


class Listener(Protocol):
    """Who is told."""

    def command(self, label: str, when: str, link: "Tapped") -> None:
        """A command is about to be sent (`when` is `before`), or has run (`after`)."""


class Tapped(UnixDomainSocketConnection):
    """A connection with a listener; the greeting of a new connection is not told."""

    def __init__(self, *, listener: Listener, scripts: Mapping[str, str], **given: Any) -> None:
        super().__init__(**given)  # type: ignore[no-untyped-call]
        self._listener = listener
        self._scripts = scripts
        self._greeting = False

    def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = True
    ) -> None:
        self._greeting = True
        try:
            super().connect_check_health(check_health, retry_socket_connect)
        finally:
            self._greeting = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self._greeting:
            super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]
            return
        label = describe(_bytes(command), self._scripts)
        self._listener.command(label, "before", self)
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]
        self._listener.command(label, "after", self)

    def ran(self) -> None:
        """Wait until the command that was sent has run: its reply is here."""
        if not self.can_read(timeout=10):
            raise AssertionError("the server does not answer")


def tapped_store(url: str, namespace: str, listener: Listener) -> Store:
    """A store as a worker has it, whose every command is told."""
    client = connect(url, timeout=5, retries=False, decode=True)
    store = Store(client, namespace, url=url)
    pool: Any = client.connection_pool
    pool.connection_class = Tapped
    pool.connection_kwargs |= {"listener": listener, "scripts": script_names(store)}
    return store


def script_names(store: Store) -> dict[str, str]:
    """The name of each script, by its digest."""
    return {str(script.sha): name for name, script in store._scripts.items()}


def describe(request: bytes, scripts: Mapping[str, str]) -> str:
    """A request in a word: the event that it journals, else its script, else its command."""
    if found := _EVENT.search(request):
        return found[1].decode()
    if (found := _SHA.search(request)) and found[1].decode() in scripts:
        return scripts[found[1].decode()]
    names = [name.decode().upper() for name in _NAME.findall(request[:64])]
    return names[0] if names else "?"


def _bytes(command: bytes | str | Sequence[bytes]) -> bytes:
    if isinstance(command, str):
        return command.encode()
    if isinstance(command, bytes):
        return command
    return b"".join(bytes(part) for part in command)
