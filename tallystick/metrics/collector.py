"""Turns a snapshot of the store into metric families, for each scrape anew."""

import importlib.metadata
import logging
import re
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, product
from typing import NamedTuple, TypeAlias

from prometheus_client import Metric
from prometheus_client.registry import Collector as CollectorProtocol
from prometheus_client.samples import Exemplar

from tallystick.metrics import catalog, counters
from tallystick.metrics.catalog import FAMILIES, Family, Given
from tallystick.metrics.counters import CANARY, DRILL, Mark, ServerInfo, Snapshot

log = logging.getLogger(__name__)

_COUNTED = {family.counted: family for family in FAMILIES if family.counted}
_SUFFIX_OF_TYPE = {"counter": "_total", "info": "_info"}
_SAY_AGAIN_SECONDS = 60.0
_MILLISECONDS = re.compile(r"[0-9]{1,15}")

Series: TypeAlias = Mapping[tuple[str, ...], float]
"""The value of each combination of labels, in the order of the family's labels."""


class _Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float
    exemplar: Exemplar | None = None


class Collector(CollectorProtocol):
    """Shows what `read` returns; register it with a `CollectorRegistry`.

    `read` is called once for each scrape and must have a time-out of its own. If it raises, the
    product's families are absent, not stale, and `tallystick_redis_up` is 0. Every label set that
    can be foreseen is shown at 0 before it first counts: a counter that is born at 1 has no
    increase that an alert could see.
    """

    def __init__(
        self,
        read: Callable[[], Snapshot],
        action_types: Iterable[str],
        states: Iterable[str],
        open_states: Iterable[str],
    ) -> None:
        self._read = read
        self._action_types = frozenset(action_types)
        self._states = tuple(states)
        self._open_states = tuple(open_states)
        self._version = _installed_version()
        self._errors = 0
        self._lock = threading.Lock()
        self._blind_since = 0.0
        self._say_again_at = 0.0

    def describe(self) -> Iterator[Metric]:
        """Name the families without reading the store, so that registering needs no Redis."""
        return (_metric(family, ()) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Read the store once and show all that is known, in the order of the catalog."""
        started = time.perf_counter()
        snapshot = self._snapshot()
        shown = {} if snapshot is None else self._product(snapshot)
        own: dict[Family, Series] = {
            catalog.REDIS_UP: {(): snapshot is not None},
            catalog.COLLECT_DURATION: {(): time.perf_counter() - started},
            catalog.COLLECT_ERRORS: {(): self._errors},
            catalog.BUILD_INFO: {(self._version,): 1},
        }
        shown |= {family: _samples(family, series) for family, series in own.items()}
        for family in FAMILIES:
            if family in shown:
                yield _metric(family, shown[family])

    def _snapshot(self) -> Snapshot | None:
        try:
            snapshot = self._read()
        except Exception as error:  # whatever it is, the scrape must still say that we are blind
            self._say_blind(error)
            return None
        self._say_seeing()
        return snapshot

    def _say_blind(self, error: Exception) -> None:
        """Count it; say it at once, and then once a while."""
        now = time.monotonic()
        with self._lock:
            self._errors += 1
            self._blind_since = self._blind_since or now
            if now < self._say_again_at:
                return
            self._say_again_at = now + _SAY_AGAIN_SECONDS
        log.warning("metrics: the store cannot be read: %s: %s", type(error).__name__, error)

    def _say_seeing(self) -> None:
        with self._lock:
            since, self._blind_since, self._say_again_at = self._blind_since, 0.0, 0.0
        if since:
            log.info("metrics: the store is read again, after %.0f s", time.monotonic() - since)

    def _product(self, snapshot: Snapshot) -> dict[Family, Iterable[_Sample]]:
        series = self._counted(snapshot.counters) | self._levels(snapshot)
        series |= _canaries(snapshot) | _server(snapshot.server)
        shown: dict[Family, Iterable[_Sample]] = {
            family: _samples(family, values, snapshot.marks) for family, values in series.items()
        }
        shown[catalog.STAGE_DURATION] = _stage_durations(snapshot.counters)
        return shown

    def _counted(self, fields: Mapping[str, int]) -> dict[Family, Series]:
        seen = _fields_by_family(fields)
        types = self._action_types | {
            labels[0]
            for family, series in seen.items()
            if family.labels.get("action_type") is Given.ACTION_TYPES
            for labels in series
        }
        given = {Given.ACTION_TYPES: tuple(sorted(types)), Given.STATES: self._states}
        return {
            family: dict.fromkeys(_foreseen(family, given), 0) | seen.get(family, {})
            for family in _COUNTED.values()
        }

    def _levels(self, snapshot: Snapshot) -> dict[Family, Series]:
        actions = dict.fromkeys(self._states, 0) | dict(snapshot.actions)
        oldest, stopped = snapshot.oldest, snapshot.stops
        return {
            catalog.ACTIONS: {(_text(state),): max(n, 0) for state, n in actions.items()},
            catalog.OLDEST: {(at,): oldest[at] for at in self._open_states if at in oldest},
            catalog.WORKERS: {(): max(snapshot.workers, 0)},
            catalog.LEASES_ACTIVE: {(): max(snapshot.leases_active, 0)},
            catalog.LEASES_OVERDUE: {(): max(snapshot.leases_overdue, 0)},
            catalog.OVERDUE: {(): max(snapshot.overdue, 0)},
            catalog.QUEUE_DEPTH: {(): max(snapshot.queue_depth, 0)},
            catalog.UNDELIVERED: {(): max(snapshot.undelivered_alerts, 0)},
            catalog.STOPPED: {(scope,): int(scope in stopped) for scope in {"*", *stopped}},
        }


def _fields_by_family(fields: Mapping[str, int]) -> dict[Family, dict[tuple[str, ...], int]]:
    """The fields of known families; others may be those of a newer worker, and are left alone.

    A label value that the catalog does not list is kept: a newer worker's reason to call a person
    must not vanish in an older exporter.
    """
    seen: defaultdict[Family, dict[tuple[str, ...], int]] = defaultdict(dict)
    for name, value in fields.items():
        head, *parts = name.split(counters.SEPARATOR)
        family = _COUNTED.get(head)
        if family is not None and len(parts) == len(family.labels):
            seen[family][tuple(map(_text, parts))] = max(value, 0)
    return seen


def _foreseen(family: Family, given: Mapping[Given, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    known = (
        given[values] if isinstance(values, Given) else values for values in family.labels.values()
    )
    return product(*known)


def _stage_durations(fields: Mapping[str, int]) -> Iterator[_Sample]:
    name = catalog.STAGE_DURATION.name
    for stage, bounds in counters.STAGE_BOUNDS_MS.items():
        buckets, milliseconds = _stage(fields, stage, bounds)
        upper = [str(bound / 1000) for bound in bounds] + ["+Inf"]
        reached = list(accumulate(buckets))
        for le, count in zip(upper, reached, strict=True):
            yield _Sample(f"{name}_bucket", {"stage": stage, "le": le}, count)
        yield _Sample(f"{name}_count", {"stage": stage}, reached[-1])
        yield _Sample(f"{name}_sum", {"stage": stage}, milliseconds / 1000)


def _stage(fields: Mapping[str, int], stage: str, bounds: tuple[int, ...]) -> tuple[list[int], int]:
    """How many durations end in each bucket (the last has no bound), and the sum of all."""
    buckets, total = [0] * (len(bounds) + 1), 0
    prefix = counters.stage(stage) + counters.SEPARATOR
    for name, value in fields.items():
        if not name.startswith(prefix):
            continue
        bound, counted = name.removeprefix(prefix), max(value, 0)
        if bound == "sum":
            total = counted
        elif bound == "inf":
            buckets[-1] += counted
        elif _MILLISECONDS.fullmatch(bound):
            # A bound of another version fits into the next wider one, so that none is lost.
            buckets[bisect_left(bounds, int(bound))] += counted
    return buckets, total


def _canaries(snapshot: Snapshot) -> dict[Family, Series]:
    """When the canary and the drill last ended well; nothing where nobody keeps any."""
    ends = {
        catalog.CANARY_COMMITTED: (CANARY, "committed"),
        catalog.CANARY_ROLLED_BACK: (DRILL, "rolled_back"),
    }
    shown: dict[Family, Series] = {}
    for family, (kind, end) in ends.items():
        mark = snapshot.marks.get(counters.transition(kind, end))
        proposed = snapshot.counters.get(counters.transition(kind, "waiting_for_approval"), 0)
        shown[family] = {(): mark.at if mark else 0} if mark or proposed else {}
    return shown


def _server(info: ServerInfo | None) -> dict[Family, Series]:
    if info is None:
        return {}
    return {
        catalog.REDIS_MEMORY_USED: {(): info.memory_used},
        catalog.REDIS_MEMORY_MAX: {(): info.memory_max},
        catalog.REDIS_EVICTED: {(): info.evicted},
        catalog.REDIS_PERSISTENCE: {
            (check,): info.persistence[check] for check in counters.PERSISTENCE
        },
        catalog.REDIS_REPLICAS: {(): info.replicas},
    }


def _samples(
    family: Family, series: Series, marks: Mapping[str, Mark] | None = None
) -> list[_Sample]:
    return [
        _Sample(
            family.name,
            dict(zip(family.labels, values, strict=True)),
            value,
            _exemplar(family, values, marks or {}),
        )
        for values, value in series.items()
    ]


def _exemplar(
    family: Family, values: tuple[str, ...], marks: Mapping[str, Mark]
) -> Exemplar | None:
    """The newest action that a counter of failures has counted; only counters may have one."""
    mark = marks.get(counters.SEPARATOR.join((family.counted, *values)))
    if mark is None or family.type != "counter":
        return None
    ids = {"action_id": mark.action_id, "trace_id": mark.trace_id}
    return Exemplar({name: id for name, id in ids.items() if id}, 1, mark.at)


def _metric(family: Family, samples: Iterable[_Sample]) -> Metric:
    suffix = _SUFFIX_OF_TYPE.get(family.type, "")
    metric = Metric(family.name.removesuffix(suffix), family.help, family.type)
    for sample in samples:
        metric.add_sample(sample.name, dict(sample.labels), sample.value, exemplar=sample.exemplar)
    return metric


def _text(part: str) -> str:
    """A label value that can be sent as UTF-8, whatever bytes a foreign writer left in Redis."""
    return part.encode("utf-8", "replace").decode()


def _installed_version() -> str:
    try:
        return importlib.metadata.version("tallystick")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
