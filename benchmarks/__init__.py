"""Benchmarks: ratios between ways of doing the same, never a bare time that a test could miss."""
