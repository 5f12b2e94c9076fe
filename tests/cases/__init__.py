"""Bugs that others reported of their queues, engines and approval systems, tried on ours.

The table is docs/reference/cases.md. Each test begins its docstring with the number of its case.
"""

CASES = (
    *range(1, 50, 2),  # collected before this product was written
    *range(101, 115),  # found later, each of another kind
)
"""Every case that is tried."""
