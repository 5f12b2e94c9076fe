"""The way in and out: parse, run, and turn every error into one line and an exit status.

0 done; 1 refused or failed; 2 wrong usage; 130 interrupted.
"""

import logging
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from tallystick.cli import commands, doctoring, monitoring, operations, watching
from tallystick.cli.common import app
from tallystick.cli.render import visible
from tallystick.core.errors import TallystickError
from tallystick.telemetry import traces

__all__ = ["commands", "doctoring", "main", "monitoring", "operations", "watching"]

_INTERRUPTED = 130

_LEFT_TO_SERVICES = ("tallystick.moves", "opentelemetry")
"""Loggers that are not heard unless a worker or service has configured logging: a verb shows the
action that it has moved, and works as well while no collector answers."""
_SILENCE = logging.NullHandler()


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    sys.path.append(os.getcwd())  # action modules are found beside the caller, last of all
    for logger in _LEFT_TO_SERVICES:
        logging.getLogger(logger).addHandler(_SILENCE)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app(args=args, prog_name="tallystick")
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if status == _INTERRUPTED:  # Typer has caught it, and said nothing
            errors.print("interrupted")
        return status
    except TallystickError as error:
        errors.print(f"[bold red]error:[/] {visible(str(error))}")
        return 1
    except KeyboardInterrupt:
        errors.print("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # a bug of ours or of an action module, told without a traceback
        if os.environ.get("TALLYSTICK_DEBUG"):
            raise
        errors.print(
            f"[bold red]unexpected {type(error).__name__}:[/] {visible(str(error))}\n"
            "This should not happen. Set TALLYSTICK_DEBUG=1 to see where, and report it."
        )
        return 1
    finally:
        traces.flush()
    return 0
