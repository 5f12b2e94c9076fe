"""How things look on a terminal: actions, journals and types, for people and as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from tallystick.cli.common import console
from tallystick.core.canonical import spelt_out
from tallystick.jobs.states import State
from tallystick.jobs.view import ActionRecord, JournalEntry

_GOOD = {State.COMMITTED, State.ROLLED_BACK}
_BAD = {State.UNKNOWN, State.ROLLBACK_FAILED, State.CORRUPT, State.FAILED}
_ENDED = {
    State.REJECTED,
    State.CANCELLED,
    State.EXPIRED,
    State.PRECONDITION_FAILED,
    State.ABANDONED,
}


def visible(text: str) -> str:
    """Text safe to print: markup escaped, and characters that hide or reorder others spelt out."""
    return escape(spelt_out(text))


def print_json(
    value: BaseModel | Mapping[str, Any] | Sequence[BaseModel] | Sequence[Mapping[str, Any]],
) -> None:
    """One JSON document on standard output."""
    if isinstance(value, BaseModel):
        plain: Any = value.model_dump(mode="json")
    elif isinstance(value, Mapping):
        plain = dict(value)
    else:
        plain = [
            item.model_dump(mode="json") if isinstance(item, BaseModel) else item for item in value
        ]
    print(json.dumps(plain, indent=2, ensure_ascii=False))


def print_action(record: ActionRecord, *, as_json: bool) -> None:
    """One action, in full."""
    if as_json:
        print_json(record)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(record):
        table.add_row(name, value)
    title = f"{visible(record.action)} [dim]{record.id}[/]  {styled(record.state)}"
    console.print(Panel(table, title=title, title_align="left", border_style="dim"))
    if hint := next_step(record):
        console.print(f"[dim]next:[/] {hint}", soft_wrap=True)


def _facts(record: ActionRecord) -> list[tuple[str, str]]:
    rows = [
        ("why", visible(record.why)),
        ("parameters", inline(record.params)),
        ("reason", visible(record.reason)),
        ("key", visible(record.key)),
        ("proposed by", f"{visible(record.proposed_by)} [dim]at {record.created_at}[/]"),
        ("observed", inline(record.observed)),
        ("precondition", visible(record.precondition)),
        ("rollback", inline(record.rollback)),
        ("decisions", "\n".join(_decisions(record))),
        ("attempts", f"{record.attempts} [dim](fencing token {record.fencing_token})[/]"),
        ("result", inline(record.result)),
        ("verdict", verdict(record.verdict)),
        ("compensates", visible(record.compensates or "")),
        ("digest", record.digest),
        ("updated", record.updated_at),
        ("expires", record.expires_at if record.state is State.WAITING_FOR_APPROVAL else ""),
    ]
    return [(name, value) for name, value in rows if value]


def _decisions(record: ActionRecord) -> list[str]:
    return [
        f"{visible(vote.who)}: {vote.decision} [dim]at {vote.at}, key {vote.key_id}[/]"
        for vote in record.approvals
    ]


_SEEN = "\n  observed "


def _without_reading(words: str) -> str:
    return words.partition(_SEEN)[0]


def verdict(found: Mapping[str, Any] | None) -> str:
    """A verdict in words, with the difference line by line."""
    if not found:
        return ""
    lines = [f"[bold]{found['answer']}[/] {visible(str(found.get('reason', '')))}".rstrip()]
    for path, sides in found.get("difference", {}).items():
        want, seen = inline(sides["expected"]), inline(sides["observed"])
        lines.append(f"  {visible(path)}: expected {want}, observed {seen}")
    if len(lines) == 1 and (seen := inline(found.get("observed"))):
        lines[0] += _SEEN + seen
    return "\n".join(lines)


def inline(value: Any) -> str:
    """A JSON value on one line; empty for None and the empty object."""
    if value is None or value == {}:
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return visible(text if len(text) <= 600 else text[:600] + " …")


def styled(state: str) -> str:
    """A state in its colour."""
    colour = "green" if state in _GOOD else "red" if state in _BAD else "yellow"
    return f"[{'dim' if state in _ENDED else 'bold ' + colour}]{state}[/]"


def next_step(record: ActionRecord) -> str:
    """What a person can do about an action now."""
    id = record.id
    match record.state:
        case State.WAITING_FOR_APPROVAL:
            answer = f" --answer [bold]'{visible(record.challenge)}'[/]" if record.challenge else ""
            return (
                f"tallystick approve {id} --by WHO{answer}"
                f"   or   tallystick reject {id} --by WHO --reason TEXT"
            )
        case State.APPROVED:
            return f"it waits for a worker (tallystick worker); tallystick wait {id}"
        case State.UNKNOWN | State.ROLLBACK_FAILED | State.CORRUPT:
            return (
                "look at the target, then   tallystick resolve "
                f"{id} --to committed|rolled_back|abandoned --by WHO --evidence TEXT"
            )
        case _:
            return ""


def print_actions(records: Sequence[ActionRecord], *, as_json: bool) -> None:
    """Many actions, a line each."""
    if as_json:
        print_json(records)
        return
    if not records:
        console.print("no actions")
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    whole = {
        "id": 16,
        "state": max(len(record.state) for record in records),
        "action": min(max(len(record.action) for record in records), 32),
        "proposed by": 11,
        "updated": 19,
    }
    left = max(console.width - sum(whole.values()) - 2 * len(whole), 10)  # parameters give way
    for column in ("id", "state", "action", "parameters", "proposed by", "updated"):
        width = whole.get(column)
        table.add_column(
            column,
            overflow="ellipsis",
            no_wrap=True,
            min_width=width,
            max_width=left if width is None else None,
        )
    for record in records:
        table.add_row(
            record.id,
            styled(record.state),
            visible(record.action),
            inline(record.params)[:80],
            visible(record.proposed_by),
            record.updated_at[:19],
        )
    console.print(table)


def print_history(lines: Sequence[JournalEntry], *, as_json: bool) -> None:
    """A journal, oldest line first."""
    if as_json:
        print_json(lines)
        return
    for line in lines:
        moved = line.from_state != line.to_state
        console.print(
            f"[dim]{line.seq:>3}  {line.at}[/]  {visible(str(line.evidence.get('event', ''))):<15}"
            f"  {styled(line.to_state) if moved else '[dim]·[/]'}"
            f"  [dim]{visible(line.who)}{f', token {line.token}' if line.token else ''}[/]",
            soft_wrap=True,
        )
        if told := _told(line.evidence):
            console.print(f"     [dim]{told}[/]", soft_wrap=True)


def _told(evidence: Mapping[str, Any]) -> str:
    """The facts of a journal line that a reader wants first; `--json` has them all."""
    parts = [
        f"{name} {inline(evidence[name])}"
        for name in (
            "reply",
            "attempt",
            "why",
            "evidence",
            "result",
            "compensation",
            "seen",
            "runbook",
        )
        if evidence.get(name) not in (None, "")
    ]
    parts += [
        f"{name} {_without_reading(verdict(evidence[name]))}"
        for name in ("precondition", "verdict", "restored")
        if isinstance(evidence.get(name), Mapping)
    ]
    if rule := evidence.get("rule"):
        parts.append(f"rule {rule}")
    return "; ".join(parts)


def print_stops(stops: Sequence[JournalEntry], *, as_json: bool) -> None:
    """What is stopped now, by whom and why."""
    if as_json:
        print_json(stops)
        return
    if not stops:
        console.print("nothing is stopped")
    for line in stops:
        scope = str(line.evidence["scope"])
        name = "every action type" if scope == "*" else visible(scope)
        why = visible(str(line.evidence.get("why", "")))
        console.print(
            f"[bold red]stopped[/] {name} [dim]by {visible(line.who)} at {line.at}:[/] {why}"
        )
