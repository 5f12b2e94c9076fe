"""Canonical JSON, and the errors."""
