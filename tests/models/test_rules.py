"""The decision table of the models is that of the code: every situation of their rows."""

import itertools
import re

import pytest

from models.check import HERE
from tallystick import Protection
from tallystick.jobs.decision import Reply, Seen, Situation, Stage, Step, decide

RULE = re.compile(r"^\s*RULE\((\d+), (.*), (\w+)\);", re.M)
WORDS = {"UNREADABLE": Seen.UNKNOWN, "NOTHING": Reply.NONE, "NONE": Reply.NONE}
"""What the models call by another name than the code."""

Row = tuple[int, str, Step]


def rows(name: str) -> list[Row]:
    """The right rows of one table: number, condition in Python, step."""
    text = (HERE / "rules.pml").read_text()
    table = text.partition(f"inline {name}(")[2].partition("\n}")[0]
    table = re.sub(r"^#ifdef.*?^#endif$", "", table, flags=re.M | re.S)
    found = RULE.findall(table)
    assert len(found) == table.count("RULE("), "a row is written in a way that is not read here"
    return [(int(number), _python(when), Step[then]) for number, when, then in found]


def _python(when: str) -> str:
    for symbol, word in (("&&", " and "), ("||", " or ")):
        when = when.replace(symbol, word)
    return re.sub(r"!(?!=)", " not ", when).strip()


def decided(table: list[Row], at: Situation) -> tuple[Step, int]:
    """What the rows say."""
    names: dict[str, object] = {
        **{word.name: word for kind in (Protection, Seen, Reply, Stage) for word in kind},
        **WORDS,
        "true": True,
        "protection": at.protection,
        "stage": at.stage,
        "seen": at.seen,
        "reply": at.reply,
        "again": at.attempts_left and at.go,
        "left": at.attempts_left,
        "go": at.go,
        "only": at.only_sender,
    }
    return next(
        (step, number) for number, when, step in table if eval(when, {"__builtins__": {}}, names)
    )


def situations(*stages: Stage) -> list[Situation]:
    both = (True, False)
    return [
        Situation(
            stage,
            protection,
            seen=seen,
            reply=reply,
            attempts_left=left,
            go=go,
            only_sender=only,
        )
        for stage, protection, seen, reply, left, go, only in itertools.product(
            stages, Protection, Seen, Reply, both, both, both
        )
    ]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("decide_before_the_intent", [Stage.APPROVED]),
        ("decide_after_the_intent", [Stage.ACTING, Stage.UNDOING]),
    ],
)
def test_the_models_decide_as_the_code_does(name: str, stages: list[Stage]) -> None:
    table = rows(name)
    assert len(table) >= 6
    for at in situations(*stages):
        right = decide(at)
        assert decided(table, at) == (right.step, right.rule), at
