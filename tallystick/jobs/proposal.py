"""From a request to a stored proposal: normalise, read the target, seal, store under the key."""

import secrets
from datetime import timedelta
from typing import Any

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import InvalidInput, KeyConflict, TargetUnreadable
from tallystick.jobs.action import Action, Protection, overrides, protection_of
from tallystick.jobs.record import Content, Record
from tallystick.jobs.registry import Registry, validate
from tallystick.jobs.states import State
from tallystick.jobs.store import Store
from tallystick.metrics import counters
from tallystick.rollback import Irreversible

RESERVED = "tallystick:"
"""Idempotency keys that begin so are ours: each rollback has one."""


def rollback_key(id: str) -> str:
    """The idempotency key under which action `id` is undone."""
    return f"{RESERVED}rollback:{id}"


def request_digest(action: str, params: dict[str, Json]) -> str:
    """The digest of what a caller asked for, by which a repeated key is recognised.

    It covers name and parameters, not who asked or what the target showed: a producer that asks
    again after a lost reply gets its action, whatever has changed since.
    """
    return canonical.digest(canonical.dumps({"action": action, "params": params}))


def propose(
    store: Store, registry: Registry, name: str, given: Any, *, key: str, by: str, reason: str
) -> str:
    """Store a proposal, or find the one that the key owns already; its id.

    Raises `InvalidInput`, `UnknownAction`, `KeyConflict`, `TargetUnreadable` or a `StoreError`;
    whichever it is, nothing was stored.
    """
    key = canonical.label(key, field="key")
    if key.startswith(RESERVED):
        raise InvalidInput(
            field="key", problem=f"{RESERVED!r} is reserved", remedy="Begin it otherwise."
        )
    by = canonical.label(by, field="by")
    reason = canonical.text(reason, field="reason", line_breaks=True)
    if len(reason.encode()) > canonical.MAX_BYTES:
        raise InvalidInput(field="reason", problem="it is over 64 KiB", remedy="Shorten it.")
    spec = registry.latest(name)
    params, form = validate(spec, given)
    request = request_digest(name, form)
    owner, now = store.owner_of(key)
    if owner is None:
        content = _content(
            store, registry, spec, params, form, key=key, by=by, reason=reason, now=now
        )
        owner = store.propose(
            content,
            request,
            State.WAITING_FOR_APPROVAL,
            who=by,
            event="proposed",
            due_ms=content.expires_at - now + 1,
        )
        if owner[0] == content.id:
            return content.id
    id, stored = owner
    if stored != request:
        raise KeyConflict(key=key, id=id, stored=stored, offered=request)
    store.bump(counters.replay(name))
    store.confirm()  # what was stored before may not have been acknowledged
    return id


def compensation(
    store: Store, registry: Registry, spec: Action, given: Any, *, parent: Record, by: str
) -> str:
    """Store the action that undoes `parent`, already approved with it; its id.

    Repeated, it finds the one that exists. Raises like `propose`, and `LeaseLost` if the caller
    does not hold the parent any more.
    """
    key = rollback_key(parent.id)
    params, form = validate(spec, given)
    request = request_digest(spec.name, form)
    owner, now = store.owner_of(key)
    if owner is None:
        reason = f"undoes action {parent.id}, whose verification failed"
        content = _content(
            store,
            registry,
            spec,
            params,
            form,
            key=key,
            by=by,
            reason=reason,
            now=now,
            compensates=parent.id,
        )
        owner = store.propose(
            content,
            request,
            State.APPROVED,
            who=by,
            event="compensates",
            due_ms=0,
            parent=parent,
        )
    if owner[1] != request:
        raise KeyConflict(key=key, id=owner[0], stored=owner[1], offered=request)
    return owner[0]


def _content(
    store: Store,
    registry: Registry,
    spec: Action,
    params: Any,
    form: dict[str, Json],
    *,
    key: str,
    by: str,
    reason: str,
    now: int,
    compensates: str | None = None,
) -> Content:
    try:
        blind = protection_of(spec) is Protection.BLIND
        state = None if blind else spec.observe(params)
        observed = canonical.normalise(state, field="observed")
        challenge = None
        if isinstance(spec.rollback, Irreversible):
            challenge = canonical.text(str(spec.rollback.challenge(params)), field="challenge")
    except Exception as error:  # whatever a type raises while it reads its target
        raise TargetUnreadable(action=spec.name, problem=canonical.told(error)) from error
    return Content(
        id=secrets.token_hex(8),
        key=key,
        action=spec.name,
        version=spec.version,
        params=form,
        reason=reason,
        proposed_by=by,
        observed=observed,
        precondition=_precondition(spec),
        protection=protection_of(spec).value,
        rollback=registry.plan(spec).as_json(),
        policy=spec.policy.as_json(),
        challenge=challenge,
        expires_at=now + spec.policy.expires_after // timedelta(milliseconds=1),
        namespace=store.keys.namespace,
        compensates=compensates,
    )


def _precondition(spec: Action) -> str:
    """In words, for the approver: the type's own docstring, or what the default means."""
    if overrides(spec, "precondition"):
        words = " ".join((type(spec).precondition.__doc__ or "").split())
        return words or "as the action type checks it"
    if protection_of(spec) is Protection.BLIND:
        return "none: this target cannot be read"
    return "the observed state is unchanged"
