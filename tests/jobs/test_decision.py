"""The decision table, row by row: the whole product of what can be known about an action.

The oracle below was written from the table of the research (reliability.md, section 3.2) and not
from the code. Its amendments are those of the design: `halted` stands for a halt and for a corrupt
record; what our own call did wrong is undone at every target, and nothing else is, since a foreign
state may be somebody else's work ("version is ours" of rule 15); what a target refused is not
applied, whatever else is there; a blind target is never committed because its call returned; a
spent versioned action halts.
"""

import itertools
from functools import cache

import pytest

from tallystick.jobs.action import Protection
from tallystick.jobs.decision import (
    Lease,
    Reply,
    Seen,
    Situation,
    Stage,
    Step,
    decide,
)

SENDS = {Step.ACT, Step.RAISE_READ_ACT, Step.RESEND_CONDITION, Step.RESEND_KEY}
AFTER_INTENT = {Stage.ACTING, Stage.UNDOING}
WRONG = {Seen.PARTIAL, Seen.FOREIGN}
YES_NO = (True, False)


@cache
def every_situation() -> tuple[Situation, ...]:
    product = itertools.product(
        Stage, Protection, Seen, Reply, YES_NO, YES_NO, Lease, YES_NO, YES_NO, YES_NO
    )
    return tuple(itertools.starmap(Situation, product))


def refused_by_the_target(at: Situation) -> bool:
    """Nothing of ours was applied: the target said so, and nobody else can have sent."""
    return at.reply is Reply.REFUSED and at.only_sender


def oracle(at: Situation) -> Step:
    if at.stage is Stage.CLOSED:
        return Step.NOTHING
    if not at.intact:
        return Step.QUARANTINE
    if at.stage is Stage.HALTED:
        return Step.NOTHING
    if at.rewound:
        return Step.HALT
    if at.lease is Lease.OTHER:
        return Step.WAIT
    if at.stage is Stage.WAITING:
        return Step.WAIT if at.go else Step.CLOSE_UNSTARTED
    return (oracle_with_intent if at.stage in AFTER_INTENT else oracle_without_intent)(at)


def oracle_without_intent(at: Situation) -> Step:
    if not at.go:
        return Step.CLOSE_UNSTARTED
    if at.seen is Seen.OURS:
        return Step.HALT
    if at.seen in WRONG:
        return Step.STALE
    if not at.attempts_left:
        return Step.HALT
    blind = at.protection is Protection.BLIND
    return Step.LOOK_AGAIN if at.seen is Seen.UNKNOWN and not blind else Step.ACT


def oracle_with_intent(at: Situation) -> Step:
    if at.seen is Seen.OURS:
        return Step.SETTLE
    if refused_by_the_target(at) and at.seen is not Seen.PARTIAL:
        return Step.NOT_APPLIED
    if at.seen in WRONG:
        known_to_be_ours = at.stage is Stage.ACTING and at.reply is Reply.OK
        return Step.UNDO if known_to_be_ours else Step.HALT
    may_send = at.attempts_left and at.go
    by_protection = {
        (Protection.FENCED, Seen.ABSENT): (Step.RAISE_READ_ACT, Step.RAISE_READ_CLOSE),
        (Protection.VERSIONED, Seen.ABSENT): (Step.RESEND_CONDITION, Step.HALT),
        (Protection.KEYED, Seen.ABSENT): (Step.RESEND_KEY, Step.HALT),
        (Protection.KEYED, Seen.UNKNOWN): (Step.RESEND_KEY, Step.HALT),
    }
    go_on, close = by_protection.get((at.protection, at.seen), (Step.HALT, Step.HALT))
    return go_on if may_send else close


def test_every_row_of_the_table_is_decided_as_it_says() -> None:
    wrong = [
        (at, decided.step, oracle(at))
        for at in every_situation()
        if (decided := decide(at)).step is not oracle(at)
    ]
    assert wrong == []


def test_the_product_is_whole() -> None:
    sizes = [len(Stage), len(Protection), len(Seen), len(Reply), len(Lease)]
    assert sizes == [6, 5, 5, 4, 3]
    assert len(set(every_situation())) == 57_600


# --- what is forbidden, whatever the table says --------------------------------------------------


def rows(step: Step | set[Step]) -> list[Situation]:
    """Every situation in which this is done."""
    steps = {step} if isinstance(step, Step) else step
    return [at for at in every_situation() if decide(at).step in steps]


def test_nothing_is_sent_over_doubt() -> None:
    for at in rows(SENDS):
        assert at.intact
        assert not at.rewound
        assert at.lease is not Lease.OTHER
        assert at.go


def test_nothing_is_repeated_at_a_target_that_cannot_refuse_a_repetition() -> None:
    repeated = [at for at in rows(SENDS) if at.stage in AFTER_INTENT]
    assert repeated
    assert {at.protection for at in repeated} == {
        Protection.KEYED,
        Protection.VERSIONED,
        Protection.FENCED,
    }


def test_nothing_is_sent_over_a_state_that_is_ours_partial_or_foreign() -> None:
    assert {at.seen for at in rows(SENDS)} == {Seen.ABSENT, Seen.UNKNOWN}


def test_nothing_is_sent_when_no_attempt_is_left() -> None:
    assert all(at.attempts_left for at in rows(SENDS))


def test_nothing_is_committed_but_on_a_reading_that_shows_it() -> None:
    assert {at.seen for at in rows(Step.SETTLE)} == {Seen.OURS}
    assert {at.stage for at in rows(Step.SETTLE)} == AFTER_INTENT


def test_nothing_is_called_not_applied_but_on_a_refusal_of_the_only_sender() -> None:
    assert all(refused_by_the_target(at) for at in rows(Step.NOT_APPLIED))


def test_nothing_is_undone_but_what_a_reading_contradicts() -> None:
    assert {at.seen for at in rows(Step.UNDO)} == WRONG
    assert {at.stage for at in rows(Step.UNDO)} == {Stage.ACTING}


def test_nothing_is_undone_that_may_be_somebody_elses_work() -> None:
    assert {at.reply for at in rows(Step.UNDO)} == {Reply.OK}


def test_a_closed_action_is_left_alone() -> None:
    closed = [at for at in every_situation() if at.stage is Stage.CLOSED]
    assert {decide(at).step for at in closed} == {Step.NOTHING}


def test_a_halted_action_waits_for_a_person() -> None:
    halted = [at for at in every_situation() if at.stage is Stage.HALTED and at.intact]
    assert {decide(at).step for at in halted} == {Step.NOTHING}


def test_a_record_that_does_not_match_its_seals_does_nothing_but_go_into_quarantine() -> None:
    damaged = [at for at in every_situation() if not at.intact and at.stage is not Stage.CLOSED]
    assert {decide(at).step for at in damaged} == {Step.QUARANTINE}


def test_an_action_of_a_rewound_store_is_only_halted() -> None:
    rewound = [at for at in every_situation() if at.rewound and at.intact]
    assert {decide(at).step for at in rewound} == {Step.HALT, Step.NOTHING}


def test_what_a_living_worker_holds_is_left_to_it() -> None:
    held = [
        at for at in every_situation() if at.lease is Lease.OTHER and at.intact and not at.rewound
    ]
    assert {decide(at).step for at in held} == {Step.WAIT, Step.NOTHING}


@pytest.mark.parametrize(
    ("at", "rule"),
    [
        (Situation(Stage.CLOSED, Protection.BLIND), 1),
        (Situation(Stage.WAITING, Protection.BLIND, intact=False), 2),
        (Situation(Stage.ACTING, Protection.KEYED, rewound=True), 3),
        (Situation(Stage.HALTED, Protection.KEYED), 4),
        (Situation(Stage.ACTING, Protection.KEYED, lease=Lease.OTHER), 5),
        (Situation(Stage.WAITING, Protection.KEYED), 6),
        (Situation(Stage.APPROVED, Protection.KEYED, go=False), 7),
        (Situation(Stage.APPROVED, Protection.KEYED, Seen.OURS), 8),
        (Situation(Stage.APPROVED, Protection.KEYED, Seen.FOREIGN), 9),
        (Situation(Stage.APPROVED, Protection.KEYED, attempts_left=False), 10),
        (Situation(Stage.APPROVED, Protection.KEYED), 11),
        (Situation(Stage.APPROVED, Protection.KEYED, Seen.ABSENT), 12),
        (Situation(Stage.ACTING, Protection.READABLE, Seen.OURS), 13),
        (Situation(Stage.ACTING, Protection.READABLE, reply=Reply.REFUSED), 14),
        (Situation(Stage.ACTING, Protection.READABLE, Seen.PARTIAL), 15),
        (Situation(Stage.ACTING, Protection.FENCED, Seen.ABSENT), 16),
        (Situation(Stage.ACTING, Protection.VERSIONED, Seen.ABSENT), 17),
        (Situation(Stage.ACTING, Protection.KEYED), 18),
        (Situation(Stage.ACTING, Protection.BLIND, reply=Reply.OK), 20),
    ],
)
def test_the_journal_names_the_rule_of_the_table(at: Situation, rule: int) -> None:
    assert decide(at).rule == rule
