"""What producers, approvers and on-call engineers call: propose, decide, look, settle."""

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from tallystick.approvals import Keyring, Signer, create, load_keyring, load_signer
from tallystick.core import canonical
from tallystick.core.errors import InvalidInput, UnknownId, WaitTimeout
from tallystick.jobs import view
from tallystick.jobs.deciding import Deciding
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.oncall import OnCall
from tallystick.jobs.proposal import propose
from tallystick.jobs.record import Line, Record, Stored, Tampered
from tallystick.jobs.registry import Registry
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import AT_REST, State
from tallystick.jobs.store import Store
from tallystick.jobs.transport import Transport
from tallystick.jobs.view import ActionRecord, JournalEntry
from tallystick.telemetry import traces

_POLL_SECONDS = 0.05


class Tallystick(Deciding, OnCall):
    """The queue of approved actions. Get one with `from_settings`; close it, or use `with`.

    Every method raises a `TallystickError` that says what to do; a `StoreError` among them means
    that the store did not confirm, and the same call may be repeated.
    """

    @classmethod
    def from_settings(
        cls, settings: Settings | None = None, *, actions: Iterable[str] | None = None
    ) -> Self:
        """Open what the environment names (see `Settings`), with the embedded server if it names
        no Redis. `actions` are modules that define action types, instead of TALLYSTICK_ACTIONS.
        """
        settings = settings or Settings.load()
        registry = Registry.load(settings.actions if actions is None else actions)
        signer, keyring = _keys(settings)
        url, server = settings.store_url, None
        if url is None:
            server = EmbeddedServer.join(settings.data_dir)
            url = server.url
        return cls(
            Store.connect(
                url,
                settings.namespace,
                timeout=min(5.0, settings.lease_seconds / 3),
                replicas=settings.replicas,
            ),
            registry,
            signer=signer,
            keyring=keyring,
            settings=settings,
            transport=Transport.connect(url, settings),
            server=server,
        )

    @property
    def url(self) -> str:
        """Where the store is, with credentials: for worker processes, not for logs."""
        return self._server.url if self._server else str(self.settings.store_url)

    def close(self) -> None:
        """Give back the connections and leave the embedded server."""
        self.store.close()
        if self.transport:
            self.transport.close()
        if self._server:
            self._server.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- producers ---------------------------------------------------------------------------

    def propose(
        self, name: str, params: Any, *, key: str, by: str, reason: str = ""
    ) -> ActionRecord:
        """Propose an action; it waits for approval. `params` is a mapping or the type's model.

        `key` is the idempotency key (at most 256 bytes): the same key with the same content gives
        the same action back, with other content it raises `KeyConflict`. Raises also
        `UnknownAction`, `InvalidInput` (names the field) and `TargetUnreadable`.
        """
        with traces.span("propose"):
            id = propose(self.store, self.registry, name, params, key=key, by=by, reason=reason)
            return self.get(id)

    def cancel(self, id: str, *, by: str, reason: str = "") -> ActionRecord:
        """Withdraw an action that has not begun; it never has an effect. Raises `IllegalMove`."""
        by = canonical.label(by, field="by")
        evidence = {"event": "cancelled", "why": self._words(reason, "reason")}

        def step(record: Record) -> ActionRecord:
            if record.state is State.CANCELLED:
                return self._said_before(record)
            self._allow(record, State.CANCELLED, "Only what has not begun can be cancelled.")
            return view.view(
                self.store.move(record, State.CANCELLED, who=by, evidence=evidence, due_ms=-1)
            )

        return self._decided(id, "cancel", step)

    # --- everybody ---------------------------------------------------------------------------

    def list(
        self, state: str | None = None, *, attention: bool = False, limit: int = 100
    ) -> Sequence[ActionRecord]:
        """The newest actions, of one state or of all; at most `limit`. With `attention`, only
        those that have called a person and are neither resolved nor acknowledged."""
        if state is not None and state not in set(State):
            raise InvalidInput(
                field="state",
                problem=f"{state!r} is no state",
                remedy=f"Use one of {', '.join(State)}.",
            )
        if limit < 0:
            raise InvalidInput(
                field="limit", problem=f"{limit} is no number", remedy="Use 0 or more."
            )
        wanted = State(state) if state else None
        if attention:
            called = [self._listed(id) for id in self.store.waiting_for_people()]
            newest = sorted(called, key=lambda found: found.updated_at, reverse=True)
            return [found for found in newest if wanted in {None, found.state}][:limit]
        return [self._listed(id) for id in self.store.ids(wanted, limit=limit)]

    def _listed(self, id: str) -> ActionRecord:
        """One action of an index; one whose record was deleted is shown as corrupt."""
        try:
            return self.get(id)
        except UnknownId:
            gone = Stored(id, 0, -2, {}, [])
            return view.damaged(gone, "its record and journal are gone", state=State.CORRUPT)

    def history(self, id: str) -> Sequence[JournalEntry]:
        """The journal of one action, oldest line first; of a corrupt one, the lines that can be
        read. Raises `UnknownId`."""
        lines = []
        for text in self.store.read(canonical.label(id, field="id")).journal:
            try:
                lines.append(view.entry(Line.parse(text)))
            except Tampered:
                continue
        return lines

    def wait(self, id: str, *, timeout: float | None = None) -> ActionRecord:
        """Wait until an action is at rest (closed, or in need of a person), at most `timeout`
        seconds. Raises `WaitTimeout`; the action goes on by itself. With replicas, also they have
        it on disk when this returns; else it raises `NotReplicated`."""
        began = time.monotonic()
        while True:
            found = self.get(id)
            if found.state in AT_REST:
                self.store.confirm()
                return found
            if timeout is not None and time.monotonic() - began >= timeout:
                raise WaitTimeout(id=id, state=found.state, seconds=timeout)
            time.sleep(_POLL_SECONDS)


def _keys(settings: Settings) -> tuple[Signer | None, Keyring]:
    """The approval keys; made at the first use, unless `key_dir` names a folder of one's own."""
    folder = settings.keys_path
    signer = load_signer(folder) if settings.key_dir else create(folder)
    return signer, load_keyring(folder)
