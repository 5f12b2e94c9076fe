"""What the commands share: the app, the options, and the opening of a Tallystick."""

from typing import Annotated

import typer
from rich.console import Console

from tallystick.jobs.service import Tallystick
from tallystick.telemetry import traces

app = typer.Typer(
    name="tallystick",
    help="A queue for approved actions: done only when the world shows what was approved.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

console = Console()

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--actions",
        metavar="MODULE",
        help="Module that defines action types (repeatable; default: TALLYSTICK_ACTIONS).",
        show_default=False,
    ),
]
By = Annotated[str, typer.Option("--by", metavar="WHO", help="Who does this.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for tools.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The action's id.", show_default=False)]

_given: list[str] = []


_TRACED = frozenset({"propose", "approve", "reject", "cancel", "resolve", "acknowledge"})
"""The verbs that move an action in this process. A worker has spans in its work-horses only, since
whatever sends them has threads, and a parent that forks has none."""


@app.callback()
def everywhere(context: typer.Context, actions: Modules = None) -> None:
    """Options that may stand before the command."""
    _given[:] = actions or []
    if context.invoked_subcommand in _TRACED:
        traces.set_up("tallystick")


def opened(actions: list[str] | None = None) -> Tallystick:
    """The Tallystick that the environment and the options name; close it."""
    return Tallystick.from_settings(actions=[*_given, *(actions or [])] or None)


def without_types() -> Tallystick:
    """The same for verbs that need no action type: deciding and looking ask only the record."""
    return Tallystick.from_settings(actions=())
