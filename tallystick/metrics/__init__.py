"""Counts: what the transition script counts, and how it is shown and alerted on."""

from tallystick.metrics.shipped import shipped

__all__ = ["shipped"]
