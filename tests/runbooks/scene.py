"""The scene in which every runbook plays: one action in each state that somebody is called for."""

import itertools
from pathlib import Path
from typing import Any

from tallystick import State, Tallystick
from tallystick.jobs.settings import Settings
from tallystick.testing import Bench
from tests.runbooks.bank import World

MODULE = "tests.runbooks.bank"

ORDER = {"source": "alice", "target": "bob", "amount": "20.00"}


class Scene(Bench):
    """A bench on a real server, with actions that have come to grief."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.settings = Settings.load(
            redis_url=url, namespace=namespace, data_dir=folder, verify_deadline_seconds=0
        )
        self.tally = Tallystick.from_settings(self.settings, actions=[MODULE])
        self.redis: Any = self.tally.store._client
        self._name = "host-1:311"
        self._numbers = itertools.count(1)
        self._workers = itertools.count(2)
        self._woken = []
        self.ids: dict[str, str] = {}

    @property
    def worker(self) -> str:
        """The name of the worker that runs, as a real one would be called."""
        return self._name

    @worker.setter
    def worker(self, name: str) -> None:
        self._name = name.replace("bench-", "host-1:31")

    def order(self, key: str, *, approved: bool = True) -> str:
        """A transfer, proposed and (unless told otherwise) approved."""
        World.reset()
        if not approved:
            return self.propose("bank.transfer", ORDER, key=key, by="erin").id
        return self.approved("bank.transfer", ORDER, key=key, by="dana")

    def play(self) -> None:
        """Bring everything about; `ids` is by state."""
        self.ids["committed"] = self.run(self.order("invoice-1")).id
        self.ids["waiting_for_approval"] = self.order("invoice-2", approved=False)
        self.ids["approved"] = self.order("invoice-3")
        self.ids["running"] = self.crash(self.order("invoice-4"), "after_intent").id
        self.ids["rolling_back"] = self._wrong("invoice-5", crash="after_rollback_intent")
        self.ids["rolled_back"] = self._wrong("invoice-6")
        self.ids["rollback_failed"] = self._wrong("invoice-7", stuck=True)
        self.ids["failed"] = self._refused("invoice-8")
        self.ids["unknown"] = self._lost("notice-1")
        self.ids["corrupt"] = self._tampered("invoice-9")
        for alert in self.alerts():
            self.tally.store.delivered(alert)
        for state, id in self.ids.items():
            assert self.state(id) is State(state), (state, self.tally.get(id))

    def _wrong(self, key: str, *, stuck: bool = False, crash: str = "") -> str:
        id = self.order(key)
        World.lands_wrong, World.stuck = True, stuck
        return (self.crash(id, crash) if crash else self.run(id)).id

    def _refused(self, key: str) -> str:
        id = self.order(key)
        World.refuses = True
        return self.run(id).id

    def _lost(self, key: str) -> str:
        """Its worker died after the effect, and came back too late to say so."""
        id = self.approved("notice.post", {"text": "down at 22:00"}, key=key, by="dana")
        self.crash(id, "after_effect")
        self.run(id)
        record = self.tally.store.load(id)
        late = {"event": "late_evidence", "reply": "ok", "late_token": 1, "lost": "the lease"}
        dead = record.lines[2].worker
        self.tally.store.move(record, record.state, who=dead, worker=dead, evidence=late)
        return id

    def _tampered(self, key: str) -> str:
        id = self.order(key)
        self.redis.hset(self.tally.store.keys.action(id), "token", "99")
        return self.run(id).id
