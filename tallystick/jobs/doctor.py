"""The doctor: gathers the facts, runs the checks, and guards workers with the essential ones."""

import contextlib
import logging
import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, computed_field

from tallystick.core.errors import SettingsError, StoreUnavailable
from tallystick.jobs import doctor_local
from tallystick.jobs.checks import CHECKS
from tallystick.jobs.checks.facts import (
    WAITAOF_SINCE,
    Clock,
    Denied,
    Facts,
    Look,
    Replication,
    Timing,
)
from tallystick.jobs.checks.finding import WORST_FIRST, Finding, Severity
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.probe import Probe
from tallystick.jobs.settings import MARGIN_SECONDS, Settings
from tallystick.jobs.worker import store_timeout

log = logging.getLogger("tallystick.worker")

GUARD_SECONDS = 120.0
"""How often a worker's guard looks while all is well."""
_AGAIN_SECONDS = 2.0
_GUARD_TIMEOUT_SECONDS = 1.0
_TRIPS, _TRIPS_SECONDS = 100, 1.0
_GUARD_TRIPS = 5

WAIVABLE = frozenset(check.name for check in CHECKS) - {"server-answers"}
"""What TALLYSTICK_ALLOW_UNSAFE may name."""


class Report(BaseModel):
    """What the doctor says of one namespace's server, machine and settings."""

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

    Raises `SettingsError` for a waiver that names no check, and `EmbeddedServerError`.
    """
    waivers = waivers_of(settings)
    url, server = settings.store_url, None
    if url is None:
        server = EmbeddedServer.join(settings.data_dir)
        url = server.url
    try:
        with contextlib.closing(
            Probe.connect(
                url,
                settings.namespace,
                timeout=store_timeout(settings),
                replicas=settings.replicas,
            )
        ) as probe:
            findings = examine(gather(probe, settings, embedded=bool(server)))
            return Report(server=probe.url, findings=tuple(waived(findings, waivers)))
    finally:
        if server:
            server.leave()


def gather(probe: Probe, settings: Settings, *, embedded: bool) -> Facts:
    """Everything that the checks ask for; some hundred round trips."""
    facts = Facts(
        timing=_timing(settings, 0),
        waits_for=settings.replicas,
        client=probe.client(),
        keys=doctor_local.key_folder(settings.keys_path, chosen=settings.key_dir is not None),
        rq_version=doctor_local.rq_version(),
        filesystem=doctor_local.filesystem(settings.data_dir) if embedded else "",
    )
    try:
        before = probe.look()
        server, config, unloadable = probe.server(), probe.config(), probe.unloadable()
        trip = _slowest_but_one_percent(probe)
    except StoreUnavailable as error:
        return replace(facts, unreachable=str(error.facts["problem"]))
    everysec = not isinstance(config, Denied) and config.get("appendfsync") == "everysec"
    waits = not isinstance(server, Denied) and server.compatible >= WAITAOF_SINCE
    facts = replace(
        facts,
        timing=_timing(settings, trip),
        server=server,
        config=config,
        unloadable=unloadable,
        endpoint=probe.endpoint(embedded=embedded),
        sample=probe.sample(doctor_local.private_spellings(settings.keys_path)),
        replication=probe.replication(server),
        premature=probe.premature() if everysec and waits else (),
        access=probe.access(),
        passwordless=probe.passwordless(),
        outbox=probe.outbox(),
    )
    with contextlib.suppress(StoreUnavailable):
        facts = replace(facts, clock=Clock(probe.look(), before))
    return facts


def _slowest_but_one_percent(probe: Probe) -> float:
    """The 99th percentile of some round trips, which together take about a second at most."""
    trips: list[float] = []
    while len(trips) < _TRIPS and sum(trips) < _TRIPS_SECONDS:
        trips.append(probe.look().trip)
    return sorted(trips)[math.ceil(len(trips) * 0.99) - 1]


def _timing(settings: Settings, trip: float) -> Timing:
    return Timing(
        lease=settings.lease_seconds,
        effect=settings.effect_deadline,
        verify=settings.verify_deadline_seconds,
        margin=MARGIN_SECONDS,
        trip=trip,
    )


# --- judging -------------------------------------------------------------------------------------


def examine(facts: Facts) -> list[Finding]:
    """What every check says, worst first; of a server that is away, only what can be said."""
    return _sorted(check(facts) for check in CHECKS if check.local or not facts.unreachable)


def essential(facts: Facts) -> list[Finding]:
    """What the checks say that every worker asks at start and every few minutes."""
    return _sorted(check(facts) for check in CHECKS if check.essential)


def waivers_of(settings: Settings) -> tuple[str, ...]:
    """The checks that the settings waive. Raises `SettingsError` if one does not exist."""
    for name in settings.allow_unsafe:
        if name not in WAIVABLE:
            raise SettingsError(
                variable="TALLYSTICK_ALLOW_UNSAFE",
                problem=f"{name!r} is no check that can be waived (see `tallystick doctor`)",
            )
    return settings.allow_unsafe


def waived(findings: Iterable[Finding], names: Collection[str]) -> list[Finding]:
    """The same findings, where those that these names waive warn instead of refusing."""
    mild = {"severity": Severity.WARN, "waived": True}
    return _sorted(
        finding.model_copy(update=mild)
        if finding.name in names and finding.severity.refuses
        else finding
        for finding in findings
    )


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: WORST_FIRST.index(finding.severity))


# --- guarding ------------------------------------------------------------------------------------


class Guard:
    """Tells a worker whether it may take work, by the essential checks.

    Call `check` at every turn of the worker's loop; it looks when it is time to, and logs once per
    change. A server that does not answer changes nothing, since nobody can take work from it.
    """

    def __init__(self, url: str, settings: Settings, *, every: float = GUARD_SECONDS) -> None:
        """Raises `SettingsError` if TALLYSTICK_ALLOW_UNSAFE names no check."""
        self._waivers = waivers_of(settings)
        self._settings = settings
        self._every = every
        timeout = min(_GUARD_TIMEOUT_SECONDS, store_timeout(settings))
        self._probe = Probe.connect(url, settings.namespace, timeout=timeout)
        self._findings: list[Finding] = []
        self._looked: Look | None = None
        self._next = -math.inf
        self.refusals = 0
        """How many looks in a row refused: one alone may have met a busy moment."""
        self._told: frozenset[tuple[str, Severity]] = frozenset()

    @property
    def refusing(self) -> list[Finding]:
        """What refuses, by the last answer of the server; empty also before the first."""
        return [finding for finding in self._findings if finding.severity.refuses]

    @property
    def refuses(self) -> bool:
        """Whether no new work may be taken; so also until the first answer."""
        return self._looked is None or bool(self.refusing)

    def check(self, now: float) -> list[Finding]:
        """What holds at `now` (of a monotonic clock), worst first; looks anew when it is time.

        While something is wrong it is time every two seconds, so that work goes on soon.
        """
        if now >= self._next:
            try:
                self._look()
            except StoreUnavailable as error:
                log.debug("the guard has no answer: %s", error)
                self._next = now + _AGAIN_SECONDS
            else:
                self._tell()
                self._next = now + (
                    _AGAIN_SECONDS if self.refusing or self._looked is None else self._every
                )
        return self._findings

    def doubt(self, now: float) -> None:
        """The store has failed a call: it may come back as another, so look again soon."""
        self._next = min(self._next, now + _AGAIN_SECONDS)

    def close(self) -> None:
        """Give the connection back."""
        self._probe.close()

    def _look(self) -> None:
        server, config = self._probe.server(), self._probe.config()
        looks = [self._probe.look() for _ in range(_GUARD_TRIPS)]
        facts = Facts(  # the fastest trip: a busy host is no distant server
            timing=_timing(self._settings, min(look.trip for look in looks)),
            server=server,
            config=config,
            clock=Clock(looks[-1], self._looked),
            unloadable=self._probe.unloadable(),
            waits_for=self._settings.replicas,
            replication=self._replication(),
        )
        self._looked = looks[-1]
        self._findings = waived(essential(facts), self._waivers)
        self.refusals = self.refusals + 1 if self.refusing else 0

    def _replication(self) -> Replication:
        """Whether what workers wait for can be reached now."""
        waits = self._settings.replicas
        return Replication(False, waits, self._probe.barrier(waits) if waits else None)

    def _tell(self) -> None:
        """Log what has changed since the last time."""
        before, self._told = self._told, frozenset((f.name, f.severity) for f in self._findings)
        for finding in self._findings:
            told = (finding.name, finding.severity)
            if told in before or finding.severity is Severity.OK:
                continue
            if finding.severity.refuses:
                log.error("no new work is taken: %s", _line(finding))
            elif finding.waived:
                log.warning("UNSAFE, waived by TALLYSTICK_ALLOW_UNSAFE: %s", _line(finding))
            else:
                log.warning("%s", _line(finding))
        if not self.refusing and any(severity.refuses for _, severity in before):
            log.warning("work is taken again: what was refused is mended")


def _line(finding: Finding) -> str:
    return f"{finding.name}: {finding.found}. {finding.why} Remedy: {finding.remedy}."
