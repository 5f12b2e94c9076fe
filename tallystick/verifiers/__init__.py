"""Looks: verdicts, and ready-made re-reads of common targets."""

from tallystick.verifiers.verdict import Answer, Verdict, difference

__all__ = ["Answer", "Verdict", "difference"]
