"""The outside checker. It reads, and nothing else: the target's ledger, the stored record and
journal, the outbox. It shares no code with what it judges but the names of states and keys: hashes,
signatures and the chain are computed anew.

Each check is a function that yields what it found against a promise; its name names the promise.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import rfc8785
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from tallystick import Protection, State
from tallystick.jobs.keys import Keys
from tallystick.jobs.states import AT_REST, NEXT
from tests.crash.scenario import Scenario, Victim, Violation
from tests.crash.target import BEFORE, RESTORE, SET, UNDO, Entry

CALLS = frozenset(
    {State.ROLLING_BACK, State.ROLLBACK_FAILED, State.UNKNOWN, State.FAILED, State.CORRUPT}
)
"""Who enters one of these calls a person."""

UNTOUCHED = frozenset(
    {
        State.REJECTED,
        State.CANCELLED,
        State.EXPIRED,
        State.PRECONDITION_FAILED,
        State.FAILED,
    }
)
"""These claim that nothing was done."""

HALTS = frozenset({State.UNKNOWN, State.ROLLBACK_FAILED})

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be judged."""

    namespace: str
    id: str
    item: str
    scenario: Scenario
    trusted: frozenset[tuple[str, str]]
    """Ids and public keys (hex) of the approvers."""
    survivor: bool = False
    """A worker that was frozen past its lease has gone on, and must have said what it knows."""
    told: tuple[str, ...] = ()
    """Alerts that were delivered."""


@dataclass(frozen=True, slots=True)
class Books:
    """What is read: the target's file and the store."""

    file: Path
    redis: "redis.Redis"

    def target(self, item: str) -> tuple[list[Entry], str]:
        """The ledger of an item, oldest line first, and the item's value."""
        with closing(sqlite3.connect(self.file, timeout=20)) as db:
            rows = db.execute("SELECT * FROM ledger WHERE item=? ORDER BY n", (item,)).fetchall()
            value = db.execute("SELECT value FROM item WHERE name=?", (item,)).fetchone()[0]
        return [Entry(*row) for row in rows], str(value)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store holds of one action."""

    fields: dict[str, str]
    journal: list[Line]

    @property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.fields["content"]))

    @property
    def state(self) -> str:
        return self.fields.get("state", "nowhere")


class Trial:
    """One case, with everything that the books say about it, read once."""

    def __init__(self, books: Books, case: Case) -> None:
        self.case, self.keys = case, Keys(case.namespace)
        self.redis: Any = books.redis
        self.entries, self.value = books.target(case.item)
        self.alerts = [json.loads(text) for text in self.redis.lrange(self.keys.outbox, 0, -1)]
        self.alerts += [json.loads(text) for text in case.told]
        pipe = self.redis.pipeline(transaction=False)
        for state in State:
            pipe.zrange(self.keys.index(state), 0, -1)
        self.indexes: dict[str, list[str]] = dict(zip(State, pipe.execute(), strict=True))
        self._stored: dict[str, Stored] = {}
        self.same_item = [
            id
            for id in sorted({id for listed in self.indexes.values() for id in listed} | {case.id})
            if self.stored(id).content["params"]["item"] == case.item
        ]
        """The ids of all that concerns this item."""
        self.children = [
            id for id in self.same_item if self.stored(id).content["compensates"] == case.id
        ]

    @property
    def ids(self) -> list[str]:
        return [self.case.id, *self.children]

    def stored(self, id: str) -> Stored:
        if id not in self._stored:
            pipe = self.redis.pipeline(transaction=False)
            pipe.hgetall(self.keys.action(id))
            pipe.lrange(self.keys.journal(id), 0, -1)
            fields, journal = pipe.execute()
            self._stored[id] = Stored(fields, [json.loads(text) for text in journal])
        return self._stored[id]

    def journal(self, id: str) -> list[Line]:
        return self.stored(id).journal

    def state(self, id: str) -> str:
        return self.stored(id).state

    def content(self, id: str) -> dict[str, Any]:
        return self.stored(id).content

    def done(self, *whats: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.what in whats]


Found = Iterator[str]


def judge(books: Books, case: Case) -> tuple[str, int, list[str], list[Violation]]:
    """The state it is in, the number of effects, its journal in short, and what was violated."""
    trial = Trial(books, case)
    found = [Violation(check.__name__, text) for check in CHECKS for text in check(trial)]
    journal = [
        f"{id[:4]} {line['seq']} {line['to']} {line['evidence'].get('event')} by {line['worker']}"
        f" token {line['token']}"
        for id in trial.ids
        for line in trial.journal(id)
    ]
    journal += [f"ledger {entry}" for entry in trial.entries]
    return trial.state(case.id), len(trial.done(SET)), journal, found


# --- the promises --------------------------------------------------------------------------------


def nothing_is_stuck(trial: Trial) -> Found:
    """Every action comes to rest by itself."""
    for id in trial.ids:
        if (state := trial.state(id)) not in AT_REST:
            yield f"{id} is {state}"


def at_most_one_effect(trial: Trial) -> Found:
    """The ledger shows each effect at most once."""
    for what in (SET, UNDO, RESTORE):
        if (times := len(trial.done(what))) > 1:
            yield f"{what} happened {times} times"
    if len(trial.done(UNDO, RESTORE)) > len(trial.done(SET)):
        yield "more was undone than done"


def what_is_claimed_is_so(trial: Trial) -> Found:
    """Committed: exactly one effect, and the right one (blind: with a reply). Never begun, or
    refused: none. Rolled back: the world is as before."""
    case = trial.case
    for id in trial.ids:
        state, done = trial.state(id), [one for one in trial.entries if one.action == id]
        wanted = trial.content(id)["params"]["value"]
        if state == State.COMMITTED:
            if [entry.value for entry in done if entry.what != UNDO] != [wanted]:
                yield f"{id} is committed, and the ledger shows {[entry.value for entry in done]}"
            if case.scenario.protection is Protection.BLIND and not _answered(trial.journal(id)):
                yield f"{id} is committed without a reply, and cannot be seen"
        if state in UNTOUCHED and done:
            yield f"{id} is {state}, and was done"
    if trial.state(case.id) == State.ROLLED_BACK and trial.value != BEFORE:
        yield f"it is rolled back, and the value is {trial.value!r}"


def _answered(journal: Sequence[Line], token: int | None = None) -> bool:
    """Whether the target's yes was stored, by whoever held the action then (or by this claim)."""
    return any(
        line["evidence"]["reply"] == "ok" and token in {None, line["token"]}
        for line in journal
        if line["evidence"].get("event") == "replied"
    )


def every_effect_was_intended(trial: Trial) -> Found:
    """Each line of the ledger has an earlier stored intent, under the same token."""
    for entry in trial.entries:
        event = "undo" if entry.what == UNDO else "intent"
        before = [
            line
            for line in trial.journal(entry.action)
            if line["evidence"].get("event") == event
            and line["token"] == entry.token
            and line["at"] <= entry.at
        ]
        if not before:
            yield f"{entry.what} by {entry.action} with token {entry.token} has no earlier intent"


def every_effect_was_approved(trial: Trial) -> Found:
    """Each line of the ledger has an earlier approval, validly signed over exactly that content;
    a compensation, an earlier order of an action that has one."""
    for entry in trial.entries:
        approved = entry.action
        if parent := trial.content(entry.action)["compensates"]:
            approved = parent
            orders = [
                line["evidence"].get("rollback", {}).get("params")
                for line in trial.journal(parent)
                if line["evidence"].get("event") == "refuted" and line["at"] <= entry.at
            ]
            if trial.content(entry.action)["params"] not in orders:
                yield f"nobody ordered the compensation {entry.action}"
        if not any(at <= entry.at for at in _approvals(trial, approved)):
            yield f"{entry.what} by {entry.action} was not approved before"


def _approvals(trial: Trial, id: str) -> Iterator[int]:
    """When it was approved, for each vote whose signature holds."""
    text, keys = trial.stored(id).fields["content"], dict(trial.case.trusted)
    for line in trial.journal(id):
        vote = line["evidence"].get("vote")
        if not vote or vote["key_id"] not in keys or vote["decision"] != "approve":
            continue
        signed = {name: vote[name] for name in vote if name not in {"key_id", "signature"}}
        right = {"action_id": id, "digest": _digest(text), "namespace": trial.case.namespace}
        try:
            VerifyKey(bytes.fromhex(keys[vote["key_id"]])).verify(
                rfc8785.dumps(signed), bytes.fromhex(vote["signature"])
            )
        except BadSignatureError:
            continue
        if right.items() <= signed.items():
            yield line["at"]


def the_journal_is_whole(trial: Trial) -> Found:
    """No gap, each line chained to the one before, every arrow legal, and the record its end."""
    for id in trial.ids:
        lines, fields = trial.journal(id), trial.stored(id).fields
        before: Line = {"seq": 0, "hash": "", "to": "", "at": 0}
        for line in lines:
            body = {name: line[name] for name in line if name not in {"at", "hash"}}
            if line["hash"] != hashlib.sha256(rfc8785.dumps(body)).hexdigest():
                yield f"{id} line {line['seq']}: its hash does not fit"
            if (line["seq"], line["prev"], line["prev_at"], line["from"]) != (
                before["seq"] + 1,
                before["hash"],
                before["at"],
                before["to"],
            ):
                yield f"{id} line {line['seq']} does not follow line {before['seq']}"
            moved = before["to"] and line["to"] != before["to"]
            if moved and line["to"] not in NEXT[State(before["to"])]:
                yield f"{id} line {line['seq']}: {before['to']} to {line['to']} is no arrow"
            before = line
        stored = {"seq": str(len(lines)), "head": before["hash"], "state": before["to"]}
        if not stored.items() <= fields.items():
            yield f"{id}: the record is not the end of its journal"
        if fields["digest"] != _digest(fields["content"]):
            yield f"{id}: the content does not match its digest"


def it_is_found_where_it_belongs(trial: Trial) -> Found:
    """The index of its state holds an action, and no other; its key owns it; nobody holds it."""
    for id in trial.ids:
        state = trial.state(id)
        at = [str(one) for one, listed in trial.indexes.items() if id in listed]
        if at != [state]:
            yield f"{id} is {state}, and listed as {at}"
        key = trial.content(id)["key"]
        owner = trial.redis.get(trial.keys.idempotency(key))
        if not owner or owner.split()[0] != id:
            yield f"the key {key} owns {owner}, not {id}"
        if state in AT_REST and trial.redis.exists(trial.keys.lease(id)):
            yield f"{id} is {state}, and still leased"
    if set(trial.same_item) != set(trial.ids) or len(trial.children) > 1:
        yield f"one proposal and at most one compensation became {len(trial.same_item)} actions"


def tokens_grow(trial: Trial) -> Found:
    """Each claim has a higher fencing token than the one before, and everything until the next is
    written under it."""
    for id in trial.ids:
        token = 0
        for line in trial.journal(id):
            claimed = line["evidence"].get("event") == "claimed"
            if line["token"] <= token if claimed else line["token"] != token:
                yield f"{id} line {line['seq']} has token {line['token']} after token {token}"
            token = line["token"]


def no_failure_is_silent(trial: Trial) -> Found:
    """Whatever failed has an alert in the outbox, and waits for a person; late evidence about
    what was halted alerts again."""
    told = {(alert["id"], alert["seq"]) for alert in trial.alerts}
    for id in trial.ids:
        calls = False
        for line in trial.journal(id):
            late = line["evidence"].get("event") == "late_evidence" and line["to"] in HALTS
            if late or (line["to"] in CALLS and line["from"] != line["to"]):
                calls = True
                if (id, line["seq"]) not in told:
                    yield f"{id} line {line['seq']} ({line['to']}) has no alert"
        if calls and not trial.redis.hexists(trial.keys.attention, id):
            yield f"{id} has called a person, and does not wait for one"


def late_effects_are_told(trial: Trial) -> Found:
    """What a frozen worker did after the halt is told by it; nobody knows of a call under way."""
    under_way = any(strike.victim is Victim.CALL for strike in trial.case.scenario.strikes)
    if under_way or not trial.case.survivor:
        return
    for entry in trial.entries:
        journal = trial.journal(entry.action)
        halted = [line["at"] for line in journal if line["to"] in HALTS]
        late = [
            line for line in journal
            if line["evidence"].get("event") == "late_evidence"
            and line["evidence"].get("late_token") == entry.token
        ]  # fmt: skip
        if halted and halted[0] < entry.at and not late:
            yield f"{entry.what} by {entry.action} came after the halt, and nobody said so"


def it_ends_where_it_may(trial: Trial) -> Found:
    """Nothing is halted without need: where only links and servers break, it ends as if nothing had
    happened; so it does where the target refuses doubles, whoever dies. An outcome is unknown only
    where the reply was lost; an effect that landed wrong, also where its worker died (what is there
    by then may be somebody else's work)."""
    state, allowed = trial.state(trial.case.id), ends(trial.case.scenario)
    if state not in allowed:
        yield f"it is {state}, which is none of {', '.join(sorted(allowed))}"
    if state != State.UNKNOWN:
        return
    journal, holds = trial.journal(trial.case.id), trial.case.scenario.path in {"commit", "decide"}
    (halted,) = [line for line in journal if line["to"] == state != line["from"]]
    if _answered(journal, token=None if holds else halted["token"]):
        yield "it is unknown, although the target's answer is stored"


def ends(scenario: Scenario) -> set[State]:
    """Where its action may end."""
    path, refuses = scenario.path, scenario.protection in _REFUSES_DOUBLES
    harmless = all(strike.victim in _HARMLESS for strike in scenario.strikes)
    if path in {"decide", "commit"}:
        sure = refuses or harmless or path == "decide"
        return {State.COMMITTED} if sure else {State.COMMITTED, State.UNKNOWN}
    blind = scenario.protection is Protection.BLIND
    clean = State.ROLLBACK_FAILED if blind else State.ROLLED_BACK
    if harmless:
        return {clean}
    return {clean, State.UNKNOWN} | (set() if refuses else {State.ROLLBACK_FAILED})


_REFUSES_DOUBLES = {Protection.KEYED, Protection.VERSIONED, Protection.FENCED}
_HARMLESS = {Victim.CONNECTION, Victim.REDIS}


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


CHECKS: tuple[Callable[[Trial], Found], ...] = (
    nothing_is_stuck,
    at_most_one_effect,
    what_is_claimed_is_so,
    every_effect_was_intended,
    every_effect_was_approved,
    the_journal_is_whole,
    it_is_found_where_it_belongs,
    tokens_grow,
    no_failure_is_silent,
    late_effects_are_told,
    it_ends_where_it_may,
)
