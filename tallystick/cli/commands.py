"""The verbs of producers, approvers and on-call engineers."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tallystick.cli.common import AsJson, By, Id, Modules, app, console, opened, without_types
from tallystick.cli.render import (
    inline,
    print_action,
    print_actions,
    print_history,
    print_json,
    print_stops,
    visible,
)
from tallystick.core import canonical
from tallystick.core.errors import InvalidInput
from tallystick.jobs.action import protection_of
from tallystick.jobs.states import State

_LONGEST_TEXT = 16 * canonical.MAX_BYTES


@app.command()
def actions(modules: Modules = None, as_json: AsJson = False) -> None:
    """List the action types that are known here."""
    with opened(modules) as tally:
        known: list[dict[str, Any]] = [
            {
                "name": spec.name,
                "version": spec.version,
                "protection": protection_of(spec).value,
                "rollback": tally.registry.plan(spec).as_json(),
                "policy": spec.policy.as_json(),
                "params": spec.Params.model_json_schema(),
                "description": " ".join((type(spec).__doc__ or "").split()),
            }
            for spec in tally.registry
        ]
    if as_json:
        print_json(known)
        return
    if not known:
        console.print("no action types; name their module with --actions or TALLYSTICK_ACTIONS")
    for kind in known:
        console.print(f"[bold]{kind['name']}[/] version {kind['version']}, {kind['protection']}")
        console.print(f"  {visible(kind['description'])}", style="dim")
        console.print(f"  parameters {visible(', '.join(kind['params'].get('properties', {})))}")
        console.print(f"  rollback {inline(kind['rollback'])}")


@app.command()
def propose(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The action type.")],
    params: Annotated[
        str, typer.Option("--params", metavar="JSON|@FILE|-", help="JSON, @file, or - for stdin.")
    ],
    key: Annotated[str, typer.Option("--key", help="The idempotency key, at most 256 bytes.")],
    by: By,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the approver.")] = "",
    modules: Modules = None,
    as_json: AsJson = False,
) -> None:
    """Propose an action; it waits for approval."""
    given = canonical.loads(_text(params), field="params")
    with opened(modules) as tally:
        record = tally.propose(name, given, key=key, by=by, reason=reason)
    print_action(record, as_json=as_json)


def _text(params: str) -> bytes:
    if params == "-":
        text = sys.stdin.buffer.read(_LONGEST_TEXT + 1)
    elif params.startswith("@"):
        try:
            with Path(params[1:]).open("rb") as file:
                text = file.read(_LONGEST_TEXT + 1)
        except OSError as error:
            raise InvalidInput(
                field="params",
                problem=f"{params[1:]}: {error.strerror}",
                remedy="Name a readable file after @.",
            ) from None
    else:
        text = params.encode("utf-8", "surrogateescape")
    if len(text) > _LONGEST_TEXT:
        raise InvalidInput(
            field="params",
            problem="far over 64 KiB",
            remedy="Pass a reference to the content (a path, a URL with a digest) instead.",
        )
    return text


@app.command()
def approve(
    id: Id,
    by: By,
    answer: Annotated[
        str | None, typer.Option("--answer", help="What an irreversible action asks to type back.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say yes to exactly what `show` shows."""
    with without_types() as tally:
        print_action(tally.approve(id, by=by, answer=answer), as_json=as_json)


@app.command()
def reject(
    id: Id,
    by: By,
    reason: Annotated[str, typer.Option("--reason", help="Why not.")],
    as_json: AsJson = False,
) -> None:
    """Say no; the action never has an effect."""
    with without_types() as tally:
        print_action(tally.reject(id, by=by, reason=reason), as_json=as_json)


@app.command()
def cancel(
    id: Id,
    by: By,
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "",
    as_json: AsJson = False,
) -> None:
    """Withdraw an action that has not begun."""
    with without_types() as tally:
        print_action(tally.cancel(id, by=by, reason=reason), as_json=as_json)


@app.command()
def show(id: Id, as_json: AsJson = False) -> None:
    """Show one action: what it will do or did, who decided, what the target shows."""
    with without_types() as tally:
        print_action(tally.get(id), as_json=as_json)


@app.command("list")
def list_actions(
    state: Annotated[str | None, typer.Option("--state", help="Only this state.")] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Only those that have called a person.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the newest actions."""
    with without_types() as tally:
        print_actions(tally.list(state, attention=attention, limit=limit), as_json=as_json)


@app.command()
def history(id: Id, as_json: AsJson = False) -> None:
    """Show the journal of one action, oldest line first."""
    with without_types() as tally:
        print_history(tally.history(id), as_json=as_json)


@app.command()
def wait(
    id: Id,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="Seconds.")] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until an action is at rest; exit status 0 only if it is committed."""
    with without_types() as tally:
        record = tally.wait(id, timeout=timeout)
    print_action(record, as_json=as_json)
    if record.state is not State.COMMITTED:
        raise typer.Exit(1)


@app.command()
def resolve(
    id: Id,
    to: Annotated[
        str, typer.Option("--to", metavar="STATE", help="committed, rolled_back or abandoned.")
    ],
    by: By,
    evidence: Annotated[str, typer.Option("--evidence", help="How you know.")],
    as_json: AsJson = False,
) -> None:
    """Settle by hand, after a look at the target, what the machine cannot know."""
    with without_types() as tally:
        print_action(tally.resolve(id, to=to, by=by, evidence=evidence), as_json=as_json)


@app.command()
def acknowledge(id: Id, by: By, as_json: AsJson = False) -> None:
    """Take note of an action that called for a person; ends its alert."""
    with without_types() as tally:
        print_action(tally.acknowledge(id, by=by), as_json=as_json)


ActionName = Annotated[
    str | None, typer.Option("--action", metavar="NAME", help="Only this action type.")
]


@app.command()
def stop(
    by: By,
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    action: ActionName = None,
    as_json: AsJson = False,
) -> None:
    """Let no new action begin, of one type or of all; what is in flight is finished."""
    with without_types() as tally:
        tally.stop(by=by, reason=reason, action=action)
        if action and not any(f"|{action}|" in field for field in tally.store.snapshot().counters):
            told = f"no action of the type {visible(action)} was ever proposed here; check its name"
            Console(stderr=True).print(f"[yellow]note:[/] {told}", soft_wrap=True)
        print_stops(tally.stops(), as_json=as_json)


@app.command()
def start(
    by: By,
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "",
    action: ActionName = None,
    as_json: AsJson = False,
) -> None:
    """End a stop; waiting actions run within seconds."""
    with without_types() as tally:
        held = {str(line.evidence["scope"]) for line in tally.stops()}
        tally.start(by=by, reason=reason, action=action)
        ended = (action or "*") in held
        if not as_json:
            scope = visible(action) if action else "every action type"
            console.print(f"{'ended the stop of' if ended else 'there was no stop of'} {scope}")
        print_stops(tally.stops(), as_json=as_json)
