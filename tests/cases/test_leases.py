"""Leases that ran out, locks in the wrong hands, clocks that disagree."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from tallystick import Protection, State
from tallystick.core.errors import LeaseLost
from tallystick.jobs.recoverer import Recoverer
from tallystick.jobs.transport import Transport
from tallystick.testing import Bench
from tests.cases.actions import begin, end
from tests.cases.conftest import depth, forget_rq, wake
from tests.crash.actions import COMMIT
from tests.crash.arena import Arena
from tests.crash.zombies import Zombie, play
from tests.driving import TEN, Clock, alerts, opened, record_of, until_rest
from tests.jobs.test_service import beside
from tests.server import actions
from tests.server.conftest import Site, eventually
from tests.targets import DEPOSIT, deposit, with_method


class Frozen(Transport):
    """Stands still before its first wake-up, until it may go on."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def wake(self, action_id: str, dispatch: str) -> None:
        self.reached.set()
        assert self.go_on.wait(60)
        super().wake(action_id, dispatch)


@pytest.mark.server
def test_two_recoverers_at_once_do_no_harm_and_the_late_one_stands_back(site: Site) -> None:
    """Case 7: a recoverer freezes in its pass for longer than its lock lasts; another begins."""
    ids = [site.approved("item.readable", f"due-{number}") for number in range(3)]
    forget_rq(site)
    for id in ids:
        site.tally.store.postpone(id, until_ms=0)
    link = Frozen.connect(site.server.url, site.settings)
    assert isinstance(link, Frozen)
    late = Recoverer(site.tally.store, link, site.settings)
    other = Recoverer(
        site.tally.store, Transport.connect(site.server.url, site.settings), site.settings
    )
    frozen = threading.Thread(target=late.tick)
    frozen.start()
    assert link.reached.wait(20)
    assert other.tick() == 0, "the lock is still the late one's"
    eventually(lambda: other.tick() == 3, "the other takes over")
    link.go_on.set()
    frozen.join(20)
    assert depth(site) == 6, "both have woken all of them"
    assert late.tick() == 0
    assert depth(site) == 6
    site.worker("--processes", "2")
    assert {site.at_rest(id) for id in ids} == {"committed"}
    assert [actions.effects(f"due-{number}") for number in range(3)] == [1, 1, 1]


@pytest.mark.server
def test_an_action_that_must_wait_is_held_by_nobody_meanwhile(site: Site) -> None:
    """Case 9: the wait is longer than the lease, after which others hand out the job again."""
    id = site.approved("case.shy", "waits")
    begin("unreadable", site.folder)
    site.worker("--processes", "2")
    eventually(lambda: site.events(id).count("looked") == 2, "it was looked at twice")
    assert not site.tally.get(id).leased
    end("unreadable", site.folder)
    assert site.at_rest(id) == "committed"
    lines = site.tally.store.load(id)
    *_, looked = lines.events("looked")
    *_, claimed = lines.events("claimed")
    assert claimed.at - looked.at > 2 * site.settings.lease_seconds * 1000
    assert len(lines.events("claimed")) == 3
    assert actions.effects("waits") == 1


@pytest.mark.server
@pytest.mark.crash
def test_a_worker_that_lost_its_lease_may_only_say_what_it_saw() -> None:
    """Case 11: it is stopped after its effect, another decides, and it goes on."""
    with Arena.open() as arena:
        found = play(arena, Zombie(Protection.BLIND, COMMIT, "before replied"))
        told = [text for text in arena.told() if found.outcome.id in text]
    assert found.outcome.violations == ()
    assert (found.decided, found.outcome.state, found.outcome.effects) == ("unknown", "unknown", 1)
    assert found.late == 1
    assert ["late_evidence" in text for text in told] == [False, True]


SKEWED = """
import sys, time
real, ahead = time.time, float(sys.argv.pop(1))
time.time = lambda: real() + ahead
from tallystick.cli import main
sys.exit(main())
"""


def skewed(site: Site, seconds: int) -> None:
    """A worker whose clock is so far ahead, or behind; its guard would refuse to work with it."""
    command = [sys.executable, "-c", SKEWED, str(seconds), "worker"]
    with (site.folder / f"worker-{len(site.workers)}.log").open("wb") as log:
        env = site.env | {"TALLYSTICK_ALLOW_UNSAFE": "clock-skew"}
        site.workers.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))


@pytest.mark.server
@pytest.mark.parametrize("lease", [6])
def test_a_live_lease_is_taken_by_no_worker_whatever_its_clock_says(site: Site) -> None:
    """Case 17: recovery runs right after the claim, on hosts whose clocks are ten seconds apart."""
    skewed(site, 5)
    skewed(site, -5)
    eventually(lambda: site.tally.store.snapshot().workers == 2, "both are up")
    begin("slow", site.folder)
    id = site.approved("case.held", "held")
    eventually(lambda: site.tally.get(id).state == "running", "one of them has it")
    site.tally.store.postpone(id, until_ms=0)
    wake(site, id, 5)
    eventually(lambda: not depth(site), "the other one has seen every wake-up")
    found = site.tally.get(id)
    assert (found.state, found.attempts, found.fencing_token) == ("running", 1, 1)
    end("slow", site.folder)
    assert site.at_rest(id) == "committed"
    assert actions.effects("held") == 1


@pytest.mark.server
def test_what_belongs_to_the_second_owner_is_out_of_the_first_one_s_reach(site: Site) -> None:
    """Case 21: lease lost, second owner; the first one renews, releases, commits."""
    store = site.tally.store
    id = site.approved("item.keyed", "owned")
    first = store.claim(store.load(id), worker="first", lease_ms=1)
    eventually(lambda: not store.load(id).leased, "the lease runs out")
    second = store.claim(store.load(id), worker="second", lease_ms=60_000)
    before = store.read(id)
    assert not store.renew(id, first.owner, lease_ms=60_000)
    assert not store.release(id, first.owner)
    for to, lease in ((State.RUNNING, "hold"), (State.APPROVED, "drop")):
        with pytest.raises(LeaseLost):
            store.move(first, to, who="first", evidence={"event": "x"}, lease=lease, lease_ms=1)
    after = store.read(id)
    assert (after.fields, after.journal) == (before.fields, before.journal)
    assert after.lease_ms > 30_000
    assert store.renew(id, second.owner, lease_ms=60_000)


@pytest.mark.parametrize(
    ("protection", "end"),
    [
        (Protection.KEYED, State.COMMITTED),
        (Protection.VERSIONED, State.COMMITTED),
        (Protection.FENCED, State.COMMITTED),
        (Protection.READABLE, State.UNKNOWN),
        (Protection.BLIND, State.UNKNOWN),
    ],
)
def test_a_jump_of_the_store_s_clock_that_ends_a_live_lease_makes_no_second_effect(
    monkeypatch: pytest.MonkeyPatch, protection: Protection, end: State
) -> None:
    """Case 105: the clock jumps ahead while a worker is about to send; another one takes over."""
    clock = Clock(monkeypatch)
    bank, _ = opened(protection)
    kind = deposit(bank)
    ids: list[str] = []

    def execute(self: object, params: Any, context: Any) -> Any:
        if ids:
            taken = ids.pop()
            clock.pass_by(seconds=90)
            until_rest(other, taken)
        return kind().execute(params, context)

    bench = Bench(with_method(kind, "execute", execute))
    other = beside(bench)
    id = bench.approved(DEPOSIT, TEN)
    ids.append(id)
    bench.run(id)
    assert (bench.state(id), bank.effects()) == (end, 1)
    assert record_of(bench, id).token == 2
    if end is State.UNKNOWN:
        assert bench.events(id)[-1] == "late_evidence"
        assert alerts(bench, id) == ["outcome_unknown", "outcome_unknown"]
