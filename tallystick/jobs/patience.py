"""How a worker parent lives with a store that fails: it asks little, says little, loses nothing.

A store can be away (every question costs a time-out), refuse writes, or fail now and then. The
parent must go on killing what overruns, must not fill the log, and must not fork work-horses that
can only die; and whoever it told last must be told when the store is back.
"""

import time
from collections import deque
from collections.abc import Callable

from tallystick.core.errors import StoreError, StoreTrouble, StoreUnavailable
from tallystick.jobs.complaints import Complaints

_MOST_OWED = 1000


class Patience:
    """Asks the store on behalf of one worker parent.

    `failed(now, passing)` is called at every failure, with the seconds of a monotonic clock and
    whether it will pass.
    """

    def __init__(self, complaints: Complaints, failed: Callable[[float, bool], None]) -> None:
        self._complaints = complaints
        self._failed = failed
        self._silent = self._troubled = False
        self._owed: deque[Callable[[], object]] = deque(maxlen=_MOST_OWED)

    @property
    def troubled(self) -> bool:
        """Whether the store has failed, and has not shown since that it takes writes."""
        return self._troubled

    def begin_turn(self) -> None:
        """A new turn of the loop: a store that did not answer in the last one is asked again."""
        self._silent = False

    def ask(self, call: Callable[[], object]) -> bool:
        """Make this call; whether it was done. After one that had no answer the others of the same
        turn are not made."""
        return not self._silent and self._try(call) is None

    def _try(self, call: Callable[[], object]) -> StoreError | None:
        try:
            call()
        except StoreError as error:
            self.complain(error)
            return error
        self._complaints.worked()
        return None

    def owe(self, call: Callable[[], object]) -> None:
        """Make this call now or, in order, as soon as the store takes it."""
        self._owed.append(call)
        self.settle_debts()

    def settle_debts(self) -> None:
        """Make the calls that are owed, as far as the store takes them. One that is refused for
        good is given up, and does not hold up the others."""
        while self._owed and not self._silent:
            if isinstance(self._try(self._owed[0]), StoreTrouble):
                break
            self._owed.popleft()

    def complain(self, error: StoreError) -> None:
        """The store failed a call: say so, each kind of failure once in a while."""
        self._silent |= isinstance(error, StoreUnavailable)
        self.hear(type(error).__name__, str(error), isinstance(error, StoreTrouble))

    def hear(self, kind: str, text: str, passing: bool) -> None:
        """The same of a work-horse's call. One that is `passing` holds up everybody."""
        self._troubled |= passing
        self._failed(time.monotonic(), passing)
        self._complaints.heard(kind, text)

    def recovered(self, probe: Callable[[], object]) -> bool:
        """Whether the store takes writes again, which `probe` tries; true once per trouble."""
        if not self._troubled or not self.ask(probe):
            return False
        self._troubled = False
        return True
