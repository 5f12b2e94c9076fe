"""Redis and what lies in it: foreign jobs, old copies, eviction, lost links, numbers, alerts."""

import pickle
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tallystick import State
from tallystick.core.errors import InvalidInput
from tallystick.jobs.connection import LinkDown
from tallystick.jobs.doctor import consult
from tallystick.jobs.recoverer import Recoverer
from tallystick.jobs.run import Runner
from tallystick.jobs.transport import ENTRY_POINT, Transport
from tallystick.jobs.witness import Witness
from tests.cases.conftest import command, horse_of
from tests.crash.wiretap import Tapped, tapped_store
from tests.doctor.conftest import Launch, launch, valkey
from tests.driving import nothing_stored, opened
from tests.server import actions
from tests.server.conftest import Site, eventually
from tests.server.test_transport import forge, refusals
from tests.targets import DEPOSIT

__all__ = ["launch", "valkey"]


class Bomb:
    """Leaves a file wherever it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.proof,)


@pytest.mark.server
def test_a_job_can_name_no_function_and_bring_no_object(site: Site) -> None:
    """Case 5: whoever writes to Redis has a worker call os.system, or unpickle what they made."""
    worker = site.worker()
    horse = horse_of(worker)
    named, unpickled, control = (site.folder / name for name in ("named", "unpickled", "control"))
    pickle.loads(pickle.dumps(Bomb(control)))  # noqa: S301
    assert control.exists(), "it goes off wherever it is unpickled"
    forge(site.server, "os.system", f"touch {named}")
    pickles = [pickle.dumps(Bomb(unpickled), protocol) for protocol in (0, pickle.HIGHEST_PROTOCOL)]
    altered = [("data", one) for one in pickles] + [("status", b"bogus"), ("timeout", b"x")]
    for name, value in altered:
        forge(site.server, ENTRY_POINT, "0123456789abcdef", **{name: value})
    eventually(lambda: refusals(site) == 5, "each is refused and counted")
    assert site.log().count("security: The job") == 5
    assert not named.exists()
    assert not unpickled.exists()
    good = site.approved("item.readable", "good")
    assert site.at_rest(good) == "committed"
    assert horse_of(worker) == horse


@pytest.mark.server
def test_what_an_old_copy_of_the_store_calls_open_is_not_done_again(site: Site) -> None:
    """Case 39: a copy from before the run is restored, and workers find the action approved."""
    done = site.approved("item.blind", "done")
    site.server.stop()
    shutil.copytree(site.folder / "appendonlydir", site.folder / "copy")
    site.server.start()
    site.worker()
    assert site.at_rest(done) == "committed"
    history = site.tally.store.history()
    seen = Witness(site.settings.data_dir).seen
    eventually(lambda: seen(history.name) == history.tail, "the witness has noted it")
    site.workers[0].terminate()
    site.workers[0].wait(20)

    site.server.stop()
    shutil.rmtree(site.folder / "appendonlydir")
    (site.folder / "copy").rename(site.folder / "appendonlydir")
    site.server.start()
    assert site.tally.get(done).state == "approved"
    site.worker()
    assert site.at_rest(done) == "unknown"
    assert actions.effects("done") == 1
    assert "rewound" in site.tally.get(done).why


def severity(site: Site, check: str) -> str:
    """What the doctor says of one thing."""
    (found,) = [one for one in consult(site.settings).findings if one.name == check]
    return str(found.severity)


@pytest.mark.server
def test_no_server_that_may_evict_is_worked_on(site: Site) -> None:
    """Case 45: every eviction policy but noeviction."""
    for policy in ("allkeys-lru", "volatile-lru", "volatile-ttl"):
        command(site, "CONFIG", "SET", "maxmemory-policy", policy)
        assert severity(site, "maxmemory-policy") == "refuse"
    id = site.approved("item.readable", "kept")
    site.worker()
    eventually(lambda: "no new work is taken: maxmemory-policy" in site.log(), "it says why")
    assert site.tally.get(id).state == "approved"
    command(site, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert severity(site, "maxmemory-policy") == "ok"
    assert site.at_rest(id) == "committed"


@pytest.mark.server
def test_a_full_server_begins_nothing_and_says_so(site: Site) -> None:
    """Case 45: maxmemory is reached under noeviction."""
    id = site.approved("item.readable", "full")
    command(site, "CONFIG", "SET", "maxmemory", "1")
    site.worker()
    eventually(lambda: "out of memory" in site.log(), "the worker says so")
    assert severity(site, "memory-room") == "refuse"
    assert actions.effects("full") == 0
    command(site, "CONFIG", "SET", "maxmemory", "0")
    assert site.at_rest(id, seconds=30) == "committed"
    assert actions.effects("full") == 1


@pytest.mark.server
def test_a_barrier_that_answers_before_the_fsync_is_found_out(
    launch: Launch, valkey: str, site: Site
) -> None:
    """Case 49: everysec with WAITAOF, on a server that says yes at once."""
    url = launch(appendfsync="everysec").url
    site.settings = site.settings.model_copy(update={"redis_url": url})
    assert severity(site, "appendfsync") == "refuse"
    assert severity(site, "waitaof-premature") == "refuse"


class Swallower:
    """Lets each of these commands run, once, and loses its reply with the link."""

    def __init__(self, *labels: str) -> None:
        self.left = list(labels)

    def command(self, label: str, when: str, link: Tapped) -> None:
        if when == "after" and label in self.left:
            self.left.remove(label)
            link.ran()
            link.disconnect()  # type: ignore[no-untyped-call]
            raise LinkDown[0]("the reply is lost")


CLEAN = ["proposed", "vote", "claimed", "intent", "replied", "verified"]


@pytest.mark.server
def test_a_command_whose_reply_was_lost_counts_once(site: Site) -> None:
    """Case 104: the client sends it again, and the server carries it out again."""
    losses = Swallower(*CLEAN)
    tally, name = site.tally, site.settings.namespace
    tally.store = tapped_store(site.server.url, name, losses)
    id = site.approved("item.readable", "once")
    runner = Runner(tally.store, tally.registry, tally.keyring, site.settings, worker="here")
    assert runner.run(id) is State.COMMITTED
    assert losses.left == []
    assert site.events(id) == CLEAN
    counted = tally.store.snapshot().counters
    entered = {field: n for field, n in counted.items() if field.startswith("transitions|")}
    assert set(entered.values()) == {1}
    assert (len(entered), counted["moves"]) == (5, 6)
    assert actions.effects("once") == 1


@pytest.mark.server
def test_a_worker_whose_links_are_reset_goes_on_by_itself(site: Site) -> None:
    """Case 108: every connection is cut while workers wait for work, again and again."""
    site.worker("--processes", "2")
    for number in range(3):
        eventually(lambda: site.tally.store.snapshot().workers == 2, "both work-horses are up")
        command(site, "CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
        id = site.approved("item.readable", f"after-{number}")
        assert site.at_rest(id) == "committed"
    assert site.workers[0].poll() is None


@pytest.mark.server
def test_scripts_that_the_server_forgot_are_loaded_again(site: Site) -> None:
    """Case 109: the script cache is flushed under a running worker, as by a restart."""
    worker = site.worker()
    horse = horse_of(worker)
    for number in range(3):
        command(site, "SCRIPT", "FLUSH")
        id = site.approved("item.keyed", f"flushed-{number}")
        assert site.at_rest(id) == "committed"
    assert horse_of(worker) == horse


@pytest.mark.parametrize("amount", [2**53 + 1, 899_999_999_999_999_990, 1e300, float("inf")])
def test_a_number_that_json_cannot_carry_is_refused_and_not_rounded(amount: float) -> None:
    """Case 110: a large integer arrives as another one."""
    _, bench = opened()
    with nothing_stored(bench), pytest.raises(InvalidInput, match="params"):
        bench.propose(DEPOSIT, {"account": "alice", "amount": amount})


@pytest.mark.parametrize("amount", ["899999999999999990.0000000001", "0.1", "1e-20"])
def test_an_amount_arrives_to_the_last_digit(amount: str) -> None:
    """Case 110: so do decimals, which never pass through a float."""
    bank, bench = opened()
    id = bench.approved(DEPOSIT, {"account": "alice", "amount": amount})
    assert bench.run(id).state is State.COMMITTED
    assert bank.balance() - 100 == Decimal(amount)


@pytest.mark.server
def test_an_alert_whose_first_delivery_fails_is_delivered_later(site: Site) -> None:
    """Case 111: the channel is down when the alert is due, and its process dies after that."""
    tally = site.tally
    id = site.approved("item.wrong", "wrong")
    runner = Runner(tally.store, tally.registry, tally.keyring, site.settings, worker="here")
    assert runner.run(id) is State.ROLLED_BACK
    waiting = tally.store.alerts()
    assert len(waiting) == 1

    def down(alert: str) -> None:
        raise ConnectionError("the channel is down")

    link = Transport.connect(site.server.url, site.settings)
    Recoverer(tally.store, link, site.settings, deliver=down).tick()
    assert tally.store.alerts() == waiting
    site.worker()
    eventually(lambda: not tally.store.alerts(), "the next worker delivers")
    assert site.log().count(f"ALERT verification_failed: action {id}") == 1
