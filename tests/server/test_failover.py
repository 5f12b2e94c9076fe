"""A failover that loses what was acknowledged, with nobody waiting for replicas: it is found, said,
and what is open goes to a person. Nothing is done twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tests.server import actions
from tests.server.conftest import ACTIONS, Launch, Site, command, eventually
from tests.server.replicas import Pair, pair, switched, watched

pytestmark = pytest.mark.server

KINDS = ("readable", "keyed", "versioned", "fenced", "blind")


@pytest.fixture
def two(launch: Launch) -> Iterator[Pair]:
    with pair(launch) as found:
        yield found


@pytest.fixture
def site(two: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on the pair, reached through a sentinel."""
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    with watched(two.primary, tmp_path) as url:
        settings = Settings.load(
            redis_url=url, data_dir=tmp_path / "data", actions=(ACTIONS,), lease_seconds=2
        )
        with Tallystick.from_settings(settings) as tally:
            found = Site(tmp_path, two.primary, settings, tally, worker_url=url)
            with actions.target():
                pass
            yield found
            for process in found.workers:
                process.kill()
                process.wait(10)


def approved(site: Site) -> dict[str, str]:
    """An action of each protection; their ids by their items."""
    return {kind: site.approved(f"item.{kind}", kind) for kind in KINDS}


def lose_what_comes_now(two: Pair) -> None:
    """From here on the replica hears nothing, and nobody notices."""
    two.in_step()
    two.link.silence()


def said(site: Site) -> list[str]:
    """The alerts that the worker delivered, in its words."""
    told = [json.loads(line) for line in site.log().splitlines() if "tallystick.alerts" in line]
    return [str(line["event"]) for line in told]


def test_what_a_failover_lost_is_found_and_said_and_done_once(site: Site, two: Pair) -> None:
    ids = approved(site)
    waiting = site.tally.propose(
        "item.readable", {"item": "waits", "value": "new"}, key="waits", by="producer"
    ).id
    lose_what_comes_now(two)
    site.worker("--processes", "2")
    for kind, id in ids.items():
        assert site.at_rest(id, seconds=30) == "committed", kind
    lost = site.approved("item.readable", "lost")
    assert site.at_rest(lost) == "committed"

    two.primary.stop()
    switched(site.tally.store)
    for id in (*ids.values(), waiting):
        assert site.at_rest(id, seconds=30) == "unknown"
        assert "rewound" in site.tally.get(id).why
    assert {kind: actions.effects(kind) for kind in KINDS} == dict.fromkeys(KINDS, 1)
    assert actions.effects("lost") == 1

    assert site.tally.store.operations()[-1].event == "rewound"
    assert site.tally.store.snapshot().counters["rewinds"] == 1
    eventually(lambda: len(said(site)) == len(ids) + 1, "a person is called for each")
    assert all(alert.startswith("ALERT outcome_unknown") for alert in said(site))
    assert site.log().count("everything open is halted") == 1

    after = site.approved("item.readable", "after")
    assert site.at_rest(after) == "committed"


@pytest.mark.parametrize("kind", ["readable", "fenced", "blind"])
def test_an_intent_that_is_lost_right_after_its_effect_is_not_acted_on_again(
    site: Site, two: Pair, kind: str
) -> None:
    """The primary dies inside the effect: no worker has looked at the history since."""
    id = site.approved(f"item.{kind}", kind)
    lose_what_comes_now(two)
    assert two.primary.process is not None
    (site.folder / "kill-server-before").write_text(str(two.primary.process.pid))
    site.worker("--processes", "2")
    eventually(lambda: actions.effects(kind), "the effect happens", seconds=30)
    switched(site.tally.store)
    assert site.at_rest(id, seconds=30) == "unknown"
    assert actions.effects(kind) == 1


def test_a_loss_is_found_although_more_has_been_written_since(site: Site, two: Pair) -> None:
    id = site.approved("item.blind", "blind")
    lose_what_comes_now(two)
    first = site.worker()
    assert site.at_rest(id, seconds=30) == "committed"
    first.terminate()
    first.wait(20)
    seen = site.tally.store.history().tail.moves

    two.primary.stop()
    switched(site.tally.store)
    for number in range(10):
        site.approved("item.readable", f"since-{number}")
    assert site.tally.store.history().tail.moves > seen
    assert site.tally.get(id).state == "approved"
    site.worker("--processes", "2")
    assert site.at_rest(id, seconds=30) == "unknown"
    assert actions.effects("blind") == 1


def test_a_failover_that_loses_nothing_halts_nothing(site: Site, two: Pair) -> None:
    site.worker("--processes", "2")
    done = site.approved("item.readable", "done")
    assert site.at_rest(done, seconds=30) == "committed"
    (site.folder / "slow").touch()
    ids = approved(site) | {"slow": site.approved("item.slow", "slow")}
    eventually(
        lambda: site.tally.get(ids["slow"]).state == "running", "one is caught in its effect"
    )
    two.in_step()
    two.primary.stop()
    (site.folder / "slow").unlink()
    switched(site.tally.store)
    for kind, id in ids.items():
        assert site.at_rest(id, seconds=30) == "committed", kind
        assert actions.effects(kind) == 1
    assert "rewound" not in site.log()


def test_a_replica_that_had_nothing_is_said_to_be_another_store(site: Site, two: Pair) -> None:
    site.worker()
    done = site.approved("item.readable", "done")
    assert site.at_rest(done, seconds=30) == "committed"
    command(two.primary, "FLUSHALL")
    eventually(site.tally.store.operations, "the worker says that the store is gone")
    assert site.tally.store.operations()[-1].event == "replaced"
    assert "is gone" in site.log()
    assert site.tally.store.snapshot().counters["rewinds"] == 1
