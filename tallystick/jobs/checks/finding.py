"""What a check says: how bad it is, what was found, why it matters, and the remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from tallystick.jobs.checks.facts import Facts, Unread


class Severity(StrEnum):
    """How bad a finding is, worst first."""

    REFUSE = "refuse"
    """A promise does not hold: work must not be taken."""
    UNKNOWN = "unknown"
    """It could not be read, which counts as a refusal."""
    WARN = "warn"
    OK = "ok"

    @property
    def refuses(self) -> bool:
        """Whether work must stop for this."""
        return self in {Severity.REFUSE, Severity.UNKNOWN}


WORST_FIRST = tuple(Severity)


class Finding(BaseModel):
    """What one check found."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The check; also its name in TALLYSTICK_ALLOW_UNSAFE."""
    severity: Severity
    found: str
    why: str
    """Why it matters, in one sentence."""
    remedy: str
    """The exact command or line; empty if nothing is wrong."""
    waived: bool = False
    """Whether it would refuse, but for TALLYSTICK_ALLOW_UNSAFE."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The part of a finding that depends on the facts."""

    severity: Severity
    found: str
    remedy: str = ""


def ok(found: str) -> Answer:
    """Nothing is wrong."""
    return Answer(Severity.OK, found)


def warn(found: str, remedy: str) -> Answer:
    """Something could be better; work goes on."""
    return Answer(Severity.WARN, found, remedy)


def refuse(found: str, remedy: str) -> Answer:
    """A promise does not hold."""
    return Answer(Severity.REFUSE, found, remedy)


def option_remedy(option: str, value: str) -> str:
    """How to set an option of the server, now and for its next start."""
    return (
        f"redis-cli CONFIG SET {option} {value} (and the line `{option} {value}` in redis.conf,"
        " so that it outlives a restart)"
    )


@dataclass(frozen=True, slots=True)
class Check:
    """A pure function of the facts with a name that never changes."""

    name: str
    why: str
    look: Callable[[Facts], Answer]
    essential: bool = False
    """Whether every worker asks it at start and every few minutes."""
    local: bool = False
    """Whether it can be answered while the server is away."""

    def __call__(self, facts: Facts) -> Finding:
        try:
            answer = self.look(facts)
        except Unread as unread:
            answer = Answer(
                Severity.UNKNOWN,
                str(unread),
                f"Give this user the right to `{unread.what}`; if that cannot be, and you have made"
                f" sure of it otherwise, waive it by name: TALLYSTICK_ALLOW_UNSAFE={self.name}",
            )
        return Finding(
            name=self.name,
            severity=answer.severity,
            found=answer.found,
            why=self.why,
            remedy=answer.remedy,
        )
