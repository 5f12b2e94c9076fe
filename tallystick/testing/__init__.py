"""For a team's own tests: a bench that runs its action types in process, on fakeredis.

Needs `pip install 'tallystick[testing]'`. In pytest, `pytest_plugins =
["tallystick.testing.plugin"]` gives the fixture `tally_bench`, which makes a bench of types.
"""

from tallystick.testing.bench import POINTS, Bench, Crash

__all__ = ["POINTS", "Bench", "Crash"]
