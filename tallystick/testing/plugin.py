"""The pytest fixture: `pytest_plugins = ["tallystick.testing.plugin"]`."""

from collections.abc import Callable

import pytest

from tallystick.jobs.action import Action
from tallystick.testing.bench import Bench


@pytest.fixture
def tally_bench() -> Callable[..., Bench]:
    """Make a bench: `bench = tally_bench(Transfer, Refund, lease_seconds=5)`."""

    def make(*types: type[Action], **settings: object) -> Bench:
        return Bench(*types, **settings)

    return make
