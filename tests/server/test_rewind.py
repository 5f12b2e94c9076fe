"""A store whose history went backwards: noticed, said, and nothing that was open runs."""

import shutil

import pytest

from tallystick.jobs.rewind import Historian
from tallystick.jobs.witness import Tail, Witness
from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = pytest.mark.server


def test_an_old_aof_that_is_restored_halts_what_it_calls_open(site: Site) -> None:
    done = site.approved("item.blind", "done")
    waiting = site.tally.propose(
        "item.readable", {"item": "waits", "value": "new"}, key="waits", by="producer"
    ).id
    site.server.stop()
    shutil.copytree(site.folder / "appendonlydir", site.folder / "backup")
    site.server.start()
    first = site.worker()
    assert site.at_rest(done) == "committed"
    eventually(lambda: _witnessed(site), "the worker has noted how far history went")
    first.terminate()
    first.wait(20)

    site.server.stop()
    shutil.rmtree(site.folder / "appendonlydir")
    shutil.copytree(site.folder / "backup", site.folder / "appendonlydir")
    site.server.start()
    assert site.tally.get(done).state == "approved"
    site.worker()
    assert site.at_rest(done) == "unknown"
    assert site.at_rest(waiting) == "unknown"
    assert "rewound" in site.tally.get(done).why
    assert actions.effects("done") == 1
    assert site.tally.store.operations()[-1].event == "rewound"

    after = site.approved("item.readable", "after")
    assert site.at_rest(after) == "committed"


def _witnessed(site: Site) -> bool:
    history = site.tally.store.history()
    return Witness(site.settings.data_dir).seen(history.name) == history.tail


def test_another_store_is_not_taken_for_a_rewound_one(site: Site) -> None:
    Witness(site.settings.data_dir).saw("0123456789abcdef", Tail(10_000))
    id = site.approved("item.readable", "fresh")
    site.worker()
    assert site.at_rest(id) == "committed"


def test_history_that_goes_on_is_no_rewind(site: Site) -> None:
    witness = Witness(site.settings.data_dir)
    historian = Historian(site.tally.store, witness, worker="test")
    for number in range(3):
        site.approved("item.readable", f"on-{number}")
        assert not historian.check()
    history = site.tally.store.history()
    assert witness.seen(history.name) == history.tail
