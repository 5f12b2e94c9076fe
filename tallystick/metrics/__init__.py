"""Counts: what the transition script counts, and how it is shown and alerted on."""

from importlib.resources import files

__all__ = ["rules_text"]


def rules_text() -> str:
    """The Prometheus alert rules that are installed with the package, as YAML."""
    return files("tallystick.metrics").joinpath("rules", "tallystick.rules.yaml").read_text("utf-8")
