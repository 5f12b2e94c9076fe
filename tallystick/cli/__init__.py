"""The command line: every verb of the Python API, readable by people and, with --json, by tools."""

from tallystick.cli.main import main

__all__ = ["main"]
