"""What is wrong with the store, said once in a while however often a worker meets it."""

import logging
import time
from collections.abc import Callable

_SAY_AGAIN_SECONDS = 30.0
_CALM_SECONDS = 5.0
"""After so long without a complaint, what works again has come back."""


class Complaints:
    """A worker parent meets a store that is away several times a second, and so does each of its
    work-horses; a person needs one line for it, one more every half minute, and one at the end."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: dict[str, float] = {}
        self._first = self._last = 0.0

    def heard(self, kind: str, problem: str) -> None:
        """Something failed for this reason: say so, unless one of this kind was said lately."""
        now = self._clock()
        self._first = self._first or now
        self._last = now
        if now >= self._said.get(kind, now):
            self._said[kind] = now + _SAY_AGAIN_SECONDS
            self._log.warning("%s", problem)

    def worked(self) -> None:
        """Something succeeded: say that the trouble is over, if there was one and it is."""
        if self._said and self._clock() - self._last >= _CALM_SECONDS:
            away = self._last - self._first
            self._log.warning("the store answers again, after %.0f s of trouble", away)
            self._said.clear()
            self._first = 0.0
