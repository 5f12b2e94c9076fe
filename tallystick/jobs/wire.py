"""One call to Redis: its scripts, its repetition after a lost reply, its errors in our words."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Self

from tallystick.core.errors import StoreRefused
from tallystick.jobs.connection import Client, LinkDown, connect, safe_url, translated_errors
from tallystick.jobs.keys import Keys

_PAUSE_SECONDS = (0.05, 0.25)


class Wire:
    """The connection of one namespace, and every script by its name.

    Every script is idempotent for the same arguments, so a call whose reply was lost is repeated.
    """

    def __init__(self, client: Client, namespace: str, *, url: str = "redis") -> None:
        self.keys = Keys(namespace)
        self._client = client
        self._url = url
        lua = files("tallystick.jobs") / "lua"
        common = (lua / "common.lua").read_text()
        self._scripts = {
            name: client.register_script(common + (lua / f"{name}.lua").read_text())
            for name in (
                "heartbeat",
                "inspect",
                "move",
                "propose",
                "quarantine",
                "read",
                "release",
                "renew",
                "stop",
                "sweep",
            )
        }

    @classmethod
    def connect(cls, url: str, namespace: str, *, timeout: float = 5) -> Self:
        """The store at this URL; nothing is sent yet. `timeout` bounds each command, in seconds."""
        client = connect(url, timeout=timeout, retries=False, decode=True)
        return cls(client, namespace, url=safe_url(url))

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

    def _script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        with self._errors():
            return self._repeat(lambda: self._scripts[name](keys=keys, args=args))

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
        with translated_errors(self._url):
            yield
