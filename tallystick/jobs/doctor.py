"""The doctor: gathers the facts, runs the checks, and guards workers with the essential ones."""

import contextlib
import logging
import math
import statistics
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, computed_field

from tallystick.core.errors import SettingsError, StoreUnavailable
from tallystick.jobs import doctor_local
from tallystick.jobs.checks import CHECKS
from tallystick.jobs.checks.facts import Clock, Facts, Look, Timing
from tallystick.jobs.checks.finding import WORST_FIRST, Finding, Severity
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.probe import Probe
from tallystick.jobs.settings import MARGIN_SECONDS, Settings
from tallystick.jobs.worker import store_timeout

log = logging.getLogger("tallystick.worker")

GUARD_SECONDS = 120.0
"""How often a worker's guard looks while all is well."""
_AGAIN_SECONDS = 2.0
_GUARD_TIMEOUT = 1.0
_TRIPS, _GUARD_TRIPS = 100, 5

WAIVABLE = frozenset(check.name for check in CHECKS) - {"server-answers"}
"""What TALLYSTICK_ALLOW_UNSAFE may name."""


class Report(BaseModel):
    """What the doctor says of one namespace's store, machine and settings."""

    model_config = ConfigDict(frozen=True)

    server: str
    """Its URL, without credentials."""
    findings: tuple[Finding, ...]
    """Worst first."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def refuses(self) -> bool:
        """Whether a promise does not hold, or cannot be checked."""
        return any(finding.severity.refuses for finding in self.findings)


def consult(settings: Settings) -> Report:
    """Examine what these settings name, with the embedded server if they name none.

    Raises `SettingsError` for a waiver of no check, and `EmbeddedServerError`.
    """
    waivers = waivers_of(settings)
    server = None if settings.redis_url else EmbeddedServer.join(settings.data_dir)
    try:
        url = server.url if server else str(settings.redis_url)
        with contextlib.closing(
            Probe.connect(url, settings.namespace, timeout=store_timeout(settings))
        ) as probe:
            findings = waived(examine(gather(probe, settings, embedded=bool(server))), waivers)
            return Report(server=probe.where, findings=tuple(findings))
    finally:
        if server:
            server.leave()


def gather(probe: Probe, settings: Settings, *, embedded: bool) -> Facts:
    """Everything that the checks ask for; it takes some hundred round trips."""
    local = _local(probe, settings)
    try:
        before = probe.look()
        server, config = probe.server(), probe.config()
        trips = sorted(probe.look().trip for _ in range(_TRIPS))
        replication = probe.replication(server)
        everysec = isinstance(config, dict) and config.get("appendfsync") == "everysec"
        return Facts(
            **local,
            timing=_timing(settings, trips[math.ceil(_TRIPS * 0.99) - 1]),
            server=server,
            config=config,
            endpoint=probe.endpoint(embedded=embedded),
            sample=probe.sample(doctor_local.private_spellings(settings.keys_path)),
            replication=replication,
            premature=probe.premature() if everysec else (),
            access=probe.access(),
            passwordless=probe.passwordless(),
            outbox=probe.outbox(),
            filesystem=doctor_local.filesystem(settings.data_dir) if embedded else "",
            clock=Clock(probe.look(), before),
        )
    except StoreUnavailable as error:
        problem = str(error.facts["problem"])
        return Facts(**local, timing=_timing(settings, 0), unreachable=problem)
