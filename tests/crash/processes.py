"""What the kernel knows of other processes."""

import contextlib
import os
import signal
from pathlib import Path

STOPPED, GONE = "Tt", "ZX"


def status(pid: int) -> str:
    """The kernel's letter for what a process does; X if it is gone."""
    with contextlib.suppress(OSError):
        return _stat(pid)[0]
    return "X"


def ended_by(pid: int) -> str:
    """The signal that ended a process which nobody has buried yet; empty if none did."""
    if status(pid) not in GONE:
        return ""
    return signal.Signals(int(_stat(pid)[-1]) & 0x7F).name


def children(pid: int) -> list[int]:
    """The pids of a process's children."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def signal_all(number: signal.Signals, *pids: int) -> None:
    """Signal those that live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
