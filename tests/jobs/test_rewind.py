"""What a host remembers of a store's history, and what it does when that went back.

The server is a fake one whose data is put back by hand; real failovers and restored files are in
tests/server.
"""

import errno
import fcntl
import itertools
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick import State
from tallystick.core.errors import NotReplicated
from tallystick.jobs.record import Stored
from tallystick.jobs.rewind import Historian
from tallystick.jobs.seals import unseal
from tallystick.jobs.store import Store
from tallystick.jobs.witness import Tail, Witness
from tallystick.metrics import counters
from tests.driving import (
    key_space,
    opened,
    record_of,
    redis_of,
    until_rest,
    without_replicas,
)
from tests.targets import DEPOSIT, Bank

NAME = "0123456789abcdef"


def tail(moves: int) -> Tail:
    return Tail(moves, "a" * 16, moves, "f" * 64)


# --- the witness ---------------------------------------------------------------------------------


def test_the_furthest_is_remembered_and_a_nearer_one_only_after_a_rewind(
    tmp_path: Path,
) -> None:
    witness = Witness(tmp_path)
    assert witness.seen(NAME) == Tail()
    assert witness.saw(NAME, tail(5))
    assert not witness.saw(NAME, tail(4))
    assert witness.seen(NAME) == tail(5)
    after = replace(tail(3), epoch=1)
    assert witness.saw(NAME, after)
    assert not witness.saw(NAME, tail(6)), "by somebody who does not know of the rewind"
    assert Witness(tmp_path).seen(NAME) == after
    witness.keep(NAME)
    witness.close()
    assert witness.seen(NAME) == after


def test_stores_are_told_apart_by_their_names(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.saw(NAME, tail(5))
    assert witness.seen("f" * 16) == Tail()


@pytest.mark.parametrize("name", ["", "../x", "a" * 15, "A" * 16, "0" * 17])
def test_a_name_that_is_none_of_ours_leads_to_no_file(tmp_path: Path, name: str) -> None:
    witness = Witness(tmp_path / "in")
    assert not witness.saw(name, tail(5))
    assert witness.seen(name) == Tail()
    assert list(tmp_path.iterdir()) == []


ODD_FILES = {
    "empty": "",
    "a number alone": "42",
    "something else": "what is this?",
    "of two pieces": Tail(7, "a" * 16, 7, "f" * 32 + "0" * 32).text().replace("0" * 32, "e" * 32),
}


@pytest.mark.parametrize("text", ODD_FILES.values(), ids=ODD_FILES)
def test_a_file_that_is_not_as_it_was_written_tells_nothing_and_is_written_anew(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / f"witness-{NAME}").write_text(text)
    witness = Witness(tmp_path)
    assert witness.seen(NAME) == Tail()
    assert witness.saw(NAME, tail(1))
    assert witness.seen(NAME) == tail(1)


def test_a_shorter_one_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.saw(NAME, tail(10**9))
    witness.saw(NAME, Tail(1, epoch=1))
    assert witness.seen(NAME) == Tail(1, epoch=1)


def test_nobody_ever_reads_a_piece_of_one_and_a_piece_of_another(tmp_path: Path) -> None:
    """What a file system shows beside a write may be torn; what is compared must not be."""
    if (pid := os.fork()) == 0:
        writer = Witness(tmp_path)
        for moves in itertools.count(1):
            writer.saw(NAME, Tail(moves, f"{moves % 2}" * 16, 1, f"{moves % 2}" * 64))
    try:
        reader = Witness(tmp_path)
        seen = [reader.seen(NAME) for _ in range(60_000)]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    told = [one for one in seen if one.moves]
    assert told[-1].moves > told[0].moves, "they wrote and read at the same time"
    assert {(one.id, one.hash) for one in told} <= {(d * 16, d * 64) for d in "01"}
    assert all(one.id == f"{one.moves % 2}" * 16 for one in told)


def test_nobody_hangs_where_a_writer_was_stopped_while_it_held_the_lock(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.saw(NAME, tail(1))
    with (tmp_path / f"witness-{NAME}").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not witness.saw(NAME, tail(2))
    assert witness.seen(NAME) == tail(1)
    assert witness.saw(NAME, tail(2))


def test_a_folder_that_cannot_be_used_is_said_once_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    past = Past(tmp_path / "file")
    assert past.run(past.approved()) is State.COMMITTED
    past.historian.check()
    past.witness.keep(NAME)
    assert caplog.text.count("may not be noticed") == 1
    assert past.witness.seen(NAME) == Tail()


def test_what_a_process_saw_is_known_to_others_although_it_was_killed(tmp_path: Path) -> None:
    if (pid := os.fork()) == 0:
        Witness(tmp_path).saw(NAME, tail(7))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert Witness(tmp_path).seen(NAME) == tail(7)


def test_many_processes_remember_the_furthest(tmp_path: Path) -> None:
    pids = []
    for first in range(4):
        if (pid := os.fork()) == 0:
            witness = Witness(tmp_path)
            for moves in range(first, 400, 4):
                witness.saw(NAME, tail(moves))
            os._exit(0)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 4
    assert Witness(tmp_path).seen(NAME) == tail(399)


# --- a history that went back --------------------------------------------------------------------


class Past:
    """A store that can be put back to what it held earlier; its worker has a witness, and whoever
    proposes and approves has none."""

    def __init__(self, folder: Path, protection: str = "blind") -> None:
        self.bank, self.bench = opened(protection)
        self.witness = Witness(folder)
        self.worker = Store(self.bench.redis, self.bench.settings.namespace)
        self.worker.witness = self.witness
        self.historian = Historian(self.store, self.witness, worker="parent")
        self._accounts = itertools.count()

    @property
    def store(self) -> Store:
        return self.bench.tally.store

    def proposed(self) -> str:
        order = {"account": f"a{next(self._accounts)}", "amount": "10"}
        return self.bench.propose(DEPOSIT, order).id

    def approved(self) -> str:
        id = self.proposed()
        self.bench.tally.approve(id, by="approver")
        return id

    def run(self, id: str, *, dies_at: str = "") -> State:
        """Have the worker run it; where it is then."""
        people, self.bench.tally.store = self.store, self.worker
        try:
            found = self.bench.crash(id, dies_at) if dies_at else self.bench.run(id)
        finally:
            self.bench.tally.store = people
        return found.state

    def remember(self) -> None:
        self._then = key_space(self.bench)

    def go_back(self) -> None:
        redis = redis_of(self.bench)
        redis.flushall()
        for key, value in self._then.items():
            match value:
                case str():
                    redis.set(key, value)
                case dict():
                    redis.hset(key, mapping=value)
                case [(_, float()), *_]:
                    redis.zadd(key, dict(value))
                case list():
                    redis.rpush(key, *value)
        self.worker.note_connection()

    def lose_what_comes_next(self) -> None:
        """Something is proposed and approved, the worker sees that, and the store forgets it."""
        self.remember()
        self.approved()
        assert not self.historian.check()
        self.go_back()


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def state(past: Past, id: str) -> State:
    return past.bench.state(id)


def test_each_line_that_a_worker_stores_is_witnessed_before_the_effect(past: Past) -> None:
    id = past.approved()
    past.run(id, dies_at="after_intent")
    history = past.store.history()
    assert past.witness.seen(history.name) == history.tail
    assert history.tail.hash == record_of(past.bench, id).head


def test_an_action_whose_intent_was_lost_does_not_run_again(past: Past) -> None:
    id = past.approved()
    past.remember()
    assert past.run(id) is State.COMMITTED
    past.go_back()
    assert past.run(id) is State.APPROVED
    assert past.historian.check()
    assert state(past, id) is State.UNKNOWN
    assert past.bank.effects() == 1


def test_it_is_found_although_more_was_written_since(past: Past) -> None:
    id = past.approved()
    past.remember()
    past.run(id)
    lost = past.store.history().tail
    past.go_back()
    for _ in range(5):
        past.approved()
    found = past.store.history(lost)
    assert found.tail.moves > lost.moves
    assert not found.kept
    assert past.run(id) is State.APPROVED
    assert past.historian.check()
    assert state(past, id) is State.UNKNOWN
    assert past.bank.effects() == 1


def test_it_is_found_although_the_lost_line_was_written_anew(past: Past) -> None:
    id = past.approved()
    past.remember()
    past.run(id, dies_at="after_claim")
    past.go_back()
    past.bench.run(id)  # a worker on another host, which knows of nothing
    assert past.historian.check()


def test_what_is_open_is_halted_and_said_and_what_comes_after_runs(
    past: Past, caplog: pytest.LogCaptureFixture
) -> None:
    open_ones = [past.approved(), past.proposed()]
    done = past.approved()
    past.run(done)
    past.lose_what_comes_next()
    with caplog.at_level(logging.ERROR, "tallystick.witness"):
        assert past.historian.check()
    assert [state(past, id) for id in open_ones] == [State.UNKNOWN] * 2
    assert state(past, done) is State.COMMITTED
    assert "everything open is halted" in caplog.text
    assert "2 open actions were halted" in caplog.text
    assert past.store.operations()[-1].event == "rewound"
    assert past.store.snapshot().counters[counters.REWINDS] == 1
    assert len(past.bench.alerts()) == 2
    assert not past.historian.check()
    after = past.approved()
    assert past.run(after) is State.COMMITTED


def test_an_action_that_moves_while_it_is_halted_is_halted_all_the_same(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = past.approved()
    past.lose_what_comes_next()
    moved: list[Stored] = []

    def meanwhile(store: Store, id: str, seen: Tail | None = None) -> Stored:
        stored = read(store, id, seen)
        if not moved:  # between the look and the halt
            moved.append(stored)
            past.store.claim(unseal(stored), worker="other", lease_ms=1000)
        return stored

    read = Store.read
    monkeypatch.setattr(Store, "read", meanwhile)
    assert past.historian.check()
    assert moved
    assert state(past, id) is State.UNKNOWN


def test_replicas_that_are_away_are_not_waited_for_before_anything_is_halted(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a failover there are none: each would take the whole time of a barrier."""
    without_replicas(monkeypatch)
    ids = [past.approved() for _ in range(2)]
    past.lose_what_comes_next()
    past.bench.tally.store.replicas = 1
    assert past.historian.check()
    assert [state(past, id) for id in ids] == [State.UNKNOWN] * 2
    assert counters.BARRIERS_MISSED not in past.store.snapshot().counters


def test_a_host_that_was_off_during_a_rewind_halts_nothing_that_came_after(
    past: Past, tmp_path: Path
) -> None:
    other = Historian(past.store, Witness(tmp_path / "other"), worker="other parent")
    past.approved()
    past.remember()
    past.approved()
    assert not past.historian.check()
    assert not other.check()
    past.go_back()
    assert past.historian.check()
    since = [past.approved() for _ in range(5)]
    assert not other.check()
    assert {state(past, id) for id in since} == {State.APPROVED}
    past.remember()
    past.approved()
    assert not other.check()
    past.go_back()
    assert other.check(), "it goes with the new history from here on"


def test_a_second_rewind_to_before_the_first_was_found_is_found(past: Past) -> None:
    first = past.approved()
    past.lose_what_comes_next()
    assert past.historian.check()
    past.go_back()
    assert state(past, first) is State.APPROVED
    assert past.historian.check()
    assert state(past, first) is State.UNKNOWN
    assert not past.historian.check()


def test_a_backup_that_is_put_back_after_the_store_was_emptied_is_a_rewind(past: Past) -> None:
    """Emptied by accident, somebody goes on, and somebody else puts the last backup back."""
    id = past.approved()
    past.remember()
    assert past.run(id) is State.COMMITTED
    assert not past.historian.check()
    redis_of(past.bench).flushall()
    past.proposed()
    assert not past.historian.check(), "the store is gone, here is another"
    past.go_back()
    assert past.historian.check()
    past.run(id)
    assert past.bank.effects() == 1


@pytest.mark.parametrize("absent", [[], ["owner", "token"]], ids=["alike", "of another form"])
def test_what_an_older_version_finds_is_halted_also_where_it_cannot_read_it(
    past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: list[str]
) -> None:
    """A rolling upgrade: the parent that finds the rewind first is of the older version."""
    older = Historian(past.store, Witness(tmp_path / "older"), worker="older parent")
    id = past.approved()
    past.remember()
    assert past.run(id) is State.COMMITTED
    assert not past.historian.check()
    assert not older.check()
    past.go_back()
    for field in absent:
        redis_of(past.bench).hdel(past.store.keys.action(id), field)
    monkeypatch.setattr("tallystick.jobs.seals.SCHEMA", 0)
    assert older.check()
    assert not older.check()
    monkeypatch.undo()
    assert state(past, id) is State.CORRUPT
    assert "rewound" in past.bench.tally.get(id).why
    assert not past.historian.check(), "it is over for the newer one as well"
    assert past.run(id) is State.CORRUPT
    assert past.bank.effects() == 1
    assert [line.event for line in past.store.operations()] == ["rewound"]


def test_what_is_approved_while_the_rest_is_halted_is_halted_too(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = past.proposed()
    past.remember()
    past.bench.tally.approve(id, by="approver")
    assert past.run(id) is State.COMMITTED
    past.historian.check()
    past.go_back()
    all_open = Store.all_open

    def listed(store: Store) -> tuple[int, list[str]]:
        found = all_open(store)
        past.bench.tally.approve(id, by="approver")  # who sees that it waits again
        return found

    monkeypatch.setattr(Store, "all_open", listed)
    assert past.historian.check()
    past.run(id)
    assert past.bank.effects() == 1


def test_who_finds_it_when_another_host_is_done_halts_nothing_new(
    past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Historian(past.store, Witness(tmp_path / "other"), worker="other parent")
    past.approved()
    past.remember()
    past.approved()
    assert not past.historian.check()
    assert not other.check()
    past.go_back()
    all_open, since = Store.all_open, []

    def listed(store: Store) -> tuple[int, list[str]]:
        monkeypatch.setattr(Store, "all_open", all_open)
        assert past.historian.check()  # the other one was slow
        since.append(past.approved())
        return all_open(store)

    monkeypatch.setattr(Store, "all_open", listed)
    other.check()
    assert state(past, since[0]) is State.APPROVED
    assert past.store.snapshot().counters[counters.REWINDS] == 1


def test_a_host_that_was_away_while_another_went_back_further_halts_nothing_new(
    past: Past, tmp_path: Path
) -> None:
    """Each found a rewind to the same backup: no two epochs are the same."""
    other = Historian(past.store, Witness(tmp_path / "other"), worker="other parent")
    past.approved()
    past.remember()
    past.approved()
    assert not other.check()
    assert not past.historian.check()
    past.go_back()
    assert past.historian.check()
    past.approved()
    assert not past.historian.check()
    epoch = past.store.history().tail.epoch
    past.go_back()
    while time_of(past) <= epoch:
        assert time_of(past) >= epoch - 60_000, "the clock goes on"
    assert other.check()
    since = [past.approved() for _ in range(9)]
    assert not past.historian.check()
    assert {state(past, id) for id in since} == {State.APPROVED}


@pytest.mark.parametrize("when", ["before", "after"])
def test_no_epoch_begins_on_a_server_where_nothing_was_halted(
    past: Past, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A second failover, around the very call that says that the first is over."""
    id = past.approved()
    past.remember()
    past.run(id)
    past.historian.check()
    past.go_back()
    over = Store.rewind_is_over

    def fails_over(store: Store, *tails: Tail) -> bool:
        monkeypatch.setattr(Store, "rewind_is_over", over)
        begun = when == "after" and over(store, *tails)
        past.go_back()
        if when == "after":
            for _ in range(9):  # more moves than were ever seen
                past.approved()
        return begun or over(store, *tails)

    monkeypatch.setattr(Store, "rewind_is_over", fails_over)
    assert past.historian.check()
    assert state(past, id) is State.APPROVED, "on that server it was not halted"
    past.run(id)
    assert past.historian.check()
    assert state(past, id) is State.UNKNOWN
    assert past.bank.effects() == 1
    assert not past.historian.check()


def test_a_data_folder_that_takes_no_writes_any_more_stops_nobody(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.approved()
    past.lose_what_comes_next()

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    assert past.historian.check()
    after = past.approved()
    assert not past.historian.check()
    assert past.run(after) is State.COMMITTED


def test_the_newest_action_that_somebody_deleted_is_a_loss_that_is_found_once(past: Past) -> None:
    waits, id = past.proposed(), past.approved()
    past.historian.check()
    redis_of(past.bench).delete(past.store.keys.action(id), past.store.keys.journal(id))
    assert past.historian.check()
    assert state(past, waits) is State.UNKNOWN
    assert not past.historian.check()


def test_what_the_replicas_do_not_have_is_not_taken_for_history(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover may lose it, and nobody goes by it: that is no rewind."""
    past.approved()
    assert not past.historian.check()
    past.remember()
    past.approved()

    def unconfirmed(store: Store) -> None:
        raise NotReplicated(url="redis", wanted=1, problem="0 of 1")

    monkeypatch.setattr(Store, "confirm", unconfirmed)
    assert not past.historian.check()
    past.go_back()
    assert not past.historian.check()


def time_of(past: Past) -> int:
    """The store's clock, in milliseconds."""
    seconds, micros = redis_of(past.bench).time()
    return int(seconds) * 1000 + int(micros) // 1000


DAMAGE = {
    "the journal is deleted": lambda keys, id: ("delete", keys.journal(id)),
    "the journal is of a foreign type": lambda keys, id: ("rename", keys.due, keys.journal(id)),
    "the record is of a foreign type": lambda keys, id: ("rename", keys.due, keys.action(id)),
    "the journal lost its end": lambda keys, id: ("rpop", keys.journal(id)),
    "the journal lost its beginning": lambda keys, id: ("lpop", keys.journal(id)),
    "its last line was altered": lambda keys, id: ("lset", keys.journal(id), -1, "{}"),
    "the record lost its head": lambda keys, id: ("hdel", keys.action(id), "head"),
    "the record lost its number": lambda keys, id: ("hdel", keys.action(id), "seq"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_one_damaged_action_is_no_rewind(past: Past, damage: Any) -> None:
    healthy = past.proposed()
    id = past.approved()
    past.run(id, dies_at="after_claim")
    assert not past.historian.check()
    name, *args = damage(past.store.keys, id)
    getattr(redis_of(past.bench), name)(*args)
    assert not past.historian.check()
    assert past.run(id) is State.CORRUPT
    assert state(past, healthy) is State.WAITING_FOR_APPROVAL
    assert not past.historian.check(), "nor is what quarantine made of it"


def test_a_line_that_was_altered_under_others_is_no_rewind(past: Past) -> None:
    healthy, id = past.proposed(), past.approved()
    past.run(id, dies_at="after_claim")
    assert not past.historian.check()
    past.bench.tally.acknowledge(id, by="somebody")
    redis_of(past.bench).lset(past.store.keys.journal(id), -2, "{}")
    assert not past.historian.check()
    assert state(past, healthy) is State.WAITING_FOR_APPROVAL


def test_a_store_that_was_emptied_is_said_to_be_gone(
    past: Past, caplog: pytest.LogCaptureFixture
) -> None:
    past.approved()
    past.historian.check()
    redis_of(past.bench).flushall()
    with caplog.at_level(logging.ERROR, "tallystick.witness"):
        assert not past.historian.check()
        assert not past.historian.check()
    assert caplog.text.count("is gone") == 1
    assert past.store.operations()[-1].event == "replaced"
    after = past.approved()
    assert past.run(after) is State.COMMITTED


def test_an_end_of_history_that_somebody_overwrote_is_no_rewind(past: Past) -> None:
    past.approved()
    past.historian.check()
    for text in ("what is this", f"{'0' * 16} 5 {'a' * 64}"):
        id = past.approved()
        redis_of(past.bench).hset(past.store.keys.counters, counters.LAST, text)
        for _ in range(2):
            assert not past.historian.check()
        assert past.run(id) is State.COMMITTED
        assert not past.historian.check()


def test_a_bank_that_was_asked_once_is_not_asked_again_by_a_worker_that_remembers(
    tmp_path: Path,
) -> None:
    """The same for every protection, where the world would not give it away."""
    for number, protection in enumerate(("readable", "keyed", "versioned", "fenced", "blind")):
        past = Past(tmp_path / str(number), protection)
        id = past.approved()
        past.remember()
        past.run(id)
        _undone_by_somebody(past.bank)
        past.go_back()
        past.run(id)
        past.historian.check()
        assert until_rest(past.bench, id).state is State.UNKNOWN
        assert len(past.bank.calls) == 1


def _undone_by_somebody(bank: Bank) -> None:
    """The account, its version and its fence are as they were before."""
    bank.balances.clear()
    bank.versions.clear()
    bank.fences.clear()
    bank.answers.clear()


def test_a_worker_that_knows_of_nothing_would_do_it_again(past: Past) -> None:
    """What the witness is for, and what it cannot do: this one is on a host that saw nothing."""
    id = past.approved()
    past.remember()
    past.run(id)
    past.go_back()
    past.bench.run(id)
    assert past.bank.effects() == 2


def test_what_a_worker_stores_after_a_failover_does_not_cover_up_what_was_lost(past: Past) -> None:
    """One worker was in the middle of another action, and writes more than was lost."""
    first, second = past.approved(), past.approved()
    past.run(second, dies_at="after_claim")
    past.remember()
    past.run(first)
    past.go_back()
    past.worker.witness = None
    past.run(second)  # the witness did not look when it began
    past.worker.witness = past.witness
    for _ in range(9):
        past.approved()
    history = past.store.history()
    past.worker.tell_witness(history.tail)
    assert past.run(first) is State.APPROVED
    assert past.historian.check()
    assert past.bank.effects(key=past.bench.tally.get(first).key) == 1
