"""The process that is the command line, also as `python -m tallystick`.

It imports nothing at first: loading the rest takes a second, and Ctrl-C is heard from the start.
"""

import os
import signal
import sys
from typing import NoReturn

_INTERRUPTED = 130


def run() -> int:
    """Run the command that the process was started with; its exit status."""
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if hears:
        signal.signal(signal.SIGINT, _leave)
    from tallystick.cli import main

    try:
        if hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    except KeyboardInterrupt:  # just before `main` listens, or just after
        _leave()
    finally:
        if hears:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _leave(*_: object) -> NoReturn:
    """End at once, where there is nothing to clean up. Not by an exception: one that is raised
    while modules load may be swallowed, or shown."""
    os.write(sys.stderr.fileno(), b"interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(run())
