"""What a scrape shows of a snapshot, read back with the parsers of prometheus_client."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Exemplar

from tallystick.metrics import counters
from tallystick.metrics.catalog import FAMILIES
from tallystick.metrics.collector import Collector
from tallystick.metrics.counters import Mark, ServerInfo, Snapshot

TYPES = ("bank.transfer", "mail.send")
OPEN = ("waiting_for_approval", "approved", "running", "unknown")
STATES = (*OPEN, "committed", "rolled_back")

OWN = {
    "tallystick_redis_up",
    "tallystick_exporter_collect_duration_seconds",
    "tallystick_exporter_collect_errors_total",
    "tallystick_build_info",
}

Shown = dict[tuple[str, frozenset[tuple[str, str]]], float]

FULL = Snapshot(
    counters={counters.transition("bank.transfer", "running"): 3},
    marks={
        counters.transition(counters.CANARY, "committed"): Mark("c" * 16, 1_764_000_100.5),
        counters.transition(counters.DRILL, "rolled_back"): Mark("d" * 16, 1_764_000_200.5),
    },
    actions={"running": 1, "committed": 2},
    oldest={"running": 1_764_000_000.25},
    workers=2,
    leases_active=6,
    leases_overdue=5,
    overdue=1,
    queue_depth=7,
    undelivered_alerts=4,
    server=ServerInfo(
        memory_used=1_000_000,
        memory_max=2_000_000,
        evicted=0,
        persistence=dict.fromkeys(counters.PERSISTENCE, True) | {"aof_last_write": False},
        replicas=1,
    ),
)


class Store:
    """Hands out what the test put in; an exception is raised."""

    def __init__(self, state: Snapshot | Exception) -> None:
        self.state = state
        self.reads = 0

    def read(self) -> Snapshot:
        self.reads += 1
        if isinstance(self.state, Exception):
            raise self.state
        return self.state


def collector_of(read: Callable[[], Snapshot]) -> Collector:
    return Collector(read, TYPES, STATES, OPEN)


def text_of(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def samples_in(families: Iterable[Metric]) -> Shown:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def shown(collector: Collector) -> Shown:
    return samples_in(parse_text(text_of(collector)))


def shown_for(**parts: object) -> Shown:
    return shown(collector_of(lambda: Snapshot(**parts)))  # type: ignore[arg-type]


def openmetrics_of(registry: CollectorRegistry) -> str:
    text: str = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    return text


def samples_of_openmetrics(text: str) -> Shown:
    """The samples, as the strict parser reads them."""
    parse = openmetrics_parser.text_string_to_metric_families
    return samples_in(parse(text))  # type: ignore[no-untyped-call]


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def values_of(samples: Shown, name: str) -> list[float]:
    return [value for (sample, _), value in samples.items() if sample == name]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (
            counters.transition("mail.send", "committed"),
            key("tallystick_transitions_total", action_type="mail.send", to_state="committed"),
        ),
        (
            counters.conflict("running"),
            key("tallystick_transition_conflicts_total", to_state="running"),
        ),
        (
            counters.attention("mail.send", "corrupt"),
            key("tallystick_attention_open", action_type="mail.send", reason="corrupt"),
        ),
        (counters.decision("expired"), key("tallystick_decisions_total", decision="expired")),
        (
            counters.precondition("mail.send", "fails"),
            key(
                "tallystick_precondition_checks_total",
                action_type="mail.send",
                result="fails",
            ),
        ),
        (
            counters.verification("mail.send", "inconclusive"),
            key("tallystick_verifications_total", action_type="mail.send", result="inconclusive"),
        ),
        (
            counters.rollback("mail.send", "rollback_failed"),
            key("tallystick_rollbacks_total", action_type="mail.send", result="rollback_failed"),
        ),
        (
            counters.replay("mail.send"),
            key("tallystick_idempotent_replays_total", action_type="mail.send"),
        ),
        (counters.FENCING_REJECTIONS, key("tallystick_fencing_rejections_total")),
        (counters.MOVES, key("tallystick_journal_lines_total")),
        (
            counters.workhorse_exit("deadline"),
            key("tallystick_workhorse_exits_total", reason="deadline"),
        ),
        (
            counters.security_event("foreign_job"),
            key("tallystick_security_events_total", kind="foreign_job"),
        ),
        (
            counters.unknown_type("mail.send"),
            key("tallystick_unknown_types_total", action_type="mail.send"),
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_each_counter_field_is_shown_under_its_labels_and_moves_nothing_else(
    field: str, expected: tuple[str, frozenset[tuple[str, str]]]
) -> None:
    before, after = shown_for(), shown_for(counters={field: 5})
    assert before[expected] == 0
    assert after[expected] == 5
    del before[expected], after[expected]
    duration = key("tallystick_exporter_collect_duration_seconds")
    assert before.items() ^ after.items() <= {(duration, before[duration])} | {
        (duration, after[duration])
    }


def test_levels_of_the_snapshot_are_shown_as_they_are() -> None:
    samples = shown(collector_of(lambda: FULL))
    assert samples[key("tallystick_actions", state="running")] == 1
    assert samples[key("tallystick_actions", state="approved")] == 0
    assert samples[key("tallystick_workers")] == 2
    assert samples[key("tallystick_leases_active")] == 6
    assert samples[key("tallystick_leases_overdue")] == 5
    assert samples[key("tallystick_overdue_actions")] == 1
    assert samples[key("tallystick_queue_depth")] == 7
    assert samples[key("tallystick_undelivered_alerts")] == 4
    assert samples[key("tallystick_redis_up")] == 1
    assert samples[key("tallystick_redis_memory_used_bytes")] == 1_000_000
    assert samples[key("tallystick_redis_memory_max_bytes")] == 2_000_000
    assert samples[key("tallystick_redis_evicted_keys_total")] == 0
    assert samples[key("tallystick_redis_persistence_ok", check="aof_enabled")] == 1
    assert samples[key("tallystick_redis_persistence_ok", check="aof_last_write")] == 0
    assert samples[key("tallystick_redis_replicas")] == 1


def test_a_server_that_tells_nothing_of_itself_has_no_series_that_would_be_made_up() -> None:
    assert not [name for name, _ in shown_for() if "_redis_" in name and "_up" not in name]


def test_canary_is_shown_when_it_last_ended_well() -> None:
    samples = shown(collector_of(lambda: FULL))
    assert samples[key("tallystick_canary_last_committed_timestamp_seconds")] == 1_764_000_100.5
    assert samples[key("tallystick_canary_last_rolled_back_timestamp_seconds")] == 1_764_000_200.5


def test_canary_that_was_proposed_and_never_ended_well_is_shown_as_never() -> None:
    proposed = counters.transition(counters.CANARY, "waiting_for_approval")
    samples = shown_for(counters={proposed: 1})
    assert samples[key("tallystick_canary_last_committed_timestamp_seconds")] == 0
    assert key("tallystick_canary_last_rolled_back_timestamp_seconds") not in samples


def test_nobody_who_keeps_no_canary_is_told_of_its_age() -> None:
    assert not [name for name, _ in shown_for() if "canary" in name]


def exemplars_of(snapshot: Snapshot) -> dict[tuple[str, frozenset[tuple[str, str]]], Exemplar]:
    registry = CollectorRegistry()
    registry.register(collector_of(lambda: snapshot))
    parse = openmetrics_parser.text_string_to_metric_families
    families = parse(openmetrics_of(registry))  # type: ignore[no-untyped-call]
    return {
        key(sample.name, **sample.labels): sample.exemplar
        for family in families
        for sample in family.samples
        if sample.exemplar
    }


def test_counter_of_failures_carries_the_newest_action_as_its_exemplar() -> None:
    failed = counters.verification("mail.send", "fails")
    open_ones = counters.attention("mail.send", "verification_failed")
    mark = Mark("420d76024f206e24", 1_764_000_000.25, "0af7651916cd43dd8448eb211c80319c")
    found = exemplars_of(Snapshot({failed: 1, open_ones: 1}, marks={failed: mark, open_ones: mark}))
    series = key("tallystick_verifications_total", action_type="mail.send", result="fails")
    assert found.keys() == {series}
    assert found[series].labels == {"action_id": mark.action_id, "trace_id": mark.trace_id}
    assert (found[series].value, float(found[series].timestamp or 0)) == (1, mark.at)


def test_exemplar_of_an_action_without_a_trace_names_the_action_alone() -> None:
    found = exemplars_of(Snapshot({"moves": 1}, marks={"moves": Mark("420d76024f206e24", 5)}))
    assert [exemplar.labels for exemplar in found.values()] == [{"action_id": "420d76024f206e24"}]


def test_every_family_of_the_catalog_is_shown_and_no_other() -> None:
    names = {name for name, _ in shown(collector_of(lambda: FULL))}
    assert names == {name for family in FAMILIES for name in family.sample_names()}


def test_types_are_declared_as_the_catalog_says() -> None:
    text = text_of(collector_of(lambda: FULL))
    declared = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
    # The classic text format has no type for an info metric.
    assert declared == [[family.name, family.type.replace("info", "gauge")] for family in FAMILIES]


def test_every_known_pair_is_shown_at_zero_before_it_first_counts() -> None:
    samples = shown_for()
    for action, state in itertools.product(TYPES, STATES):
        pair = key("tallystick_transitions_total", action_type=action, to_state=state)
        assert samples[pair] == 0
    for action, reason in itertools.product(TYPES, counters.ATTENTION):
        assert samples[key("tallystick_attention_open", action_type=action, reason=reason)] == 0
    for action, answer in itertools.product(TYPES, ("holds", "fails", "inconclusive")):
        for name in ("verifications", "precondition_checks"):
            pair = key(f"tallystick_{name}_total", action_type=action, result=answer)
            assert samples[pair] == 0


def test_action_type_that_only_the_counters_know_is_zero_filled_as_well() -> None:
    samples = shown_for(counters={counters.replay("disk.wipe"): 1})
    failed = key("tallystick_verifications_total", action_type="disk.wipe", result="fails")
    assert samples[failed] == 0


def test_reason_that_only_a_newer_worker_knows_is_shown_too() -> None:
    samples = shown_for(counters={counters.attention("mail.send", "meteorite"): 1})
    waiting = key("tallystick_attention_open", action_type="mail.send", reason="meteorite")
    assert samples[waiting] == 1


@pytest.mark.parametrize(
    "field",
    [
        "",
        "|",
        "colour|red",
        "transitions",
        "transitions|mail.send",
        "transitions|mail.send|running|again",
        "fencing_rejections|mail.send",
        "stage|running",
        "stage|running|",
        "stage|running|soon",
        "stage|running|-5",
        "stage|running|²",
        "stage|running|" + "9" * 5000,
        "stage|nowhere|10",
    ],
)
def test_foreign_fields_are_left_alone(field: str) -> None:
    clean, dirty = shown_for(), shown_for(counters={field: 5})
    assert dirty.keys() == clean.keys()
    assert sum(values_of(dirty, "tallystick_transitions_total")) == 0
    assert sum(values_of(dirty, "tallystick_stage_duration_seconds_count")) == 0


def test_label_value_that_is_not_valid_unicode_does_not_cost_the_scrape() -> None:
    samples = shown_for(counters={counters.attention("mail\udcff", "corrupt"): 1})
    assert samples[key("tallystick_attention_open", action_type="mail?", reason="corrupt")] == 1


def test_label_value_with_quotes_and_line_breaks_is_escaped() -> None:
    name = 'a "b"\\c\nd'
    samples = shown_for(counters={counters.attention(name, "corrupt"): 1})
    assert samples[key("tallystick_attention_open", action_type=name, reason="corrupt")] == 1


def test_counts_below_zero_are_shown_as_zero() -> None:
    samples = shown_for(
        counters={
            counters.transition("mail.send", "running"): -3,
            counters.attention("mail.send", "corrupt"): -1,
            counters.stage("running") + "|10": -4,
            counters.stage("running") + "|50": 2,
            counters.stage("running") + "|sum": -7,
        },
        actions={"running": -1},
        workers=-1,
        overdue=-1,
        queue_depth=-1,
        undelivered_alerts=-1,
    )
    assert min(samples.values()) == 0
    assert samples[key("tallystick_stage_duration_seconds_count", stage="running")] == 2


def test_oldest_is_absent_where_there_is_none_and_for_final_states() -> None:
    name = "tallystick_oldest_action_entered_timestamp_seconds"
    samples = shown_for(oldest={"approved": 1_764_000_000.25, "committed": 1_763_000_000.0})
    assert {part: value for part, value in samples.items() if part[0] == name} == {
        key(name, state="approved"): 1_764_000_000.25
    }


def test_histogram_accumulates_the_buckets_of_a_stage_in_seconds() -> None:
    prefix = counters.stage("running")
    samples = shown_for(
        counters={
            f"{prefix}|10": 1,
            f"{prefix}|100": 2,
            f"{prefix}|inf": 4,
            f"{prefix}|sum": 125_500,
        }
    )
    name = "tallystick_stage_duration_seconds"
    reached = {
        dict(labels)["le"]: value
        for (sample, labels), value in samples.items()
        if sample == f"{name}_bucket" and ("stage", "running") in labels
    }
    assert reached == {
        "0.01": 1,
        "0.05": 1,
        "0.1": 3,
        "0.5": 3,
        "1.0": 3,
        "5.0": 3,
        "10.0": 3,
        "30.0": 3,
        "+Inf": 7,
    }
    assert samples[key(f"{name}_count", stage="running")] == 7
    assert samples[key(f"{name}_sum", stage="running")] == 125.5
    assert samples[key(f"{name}_count", stage="verifying")] == 0


@pytest.mark.parametrize(("bound", "le"), [("20", "0.05"), ("30001", "+Inf"), ("1", "0.01")])
def test_bound_of_another_version_counts_in_the_next_wider_bucket(bound: str, le: str) -> None:
    samples = shown_for(counters={f"{counters.stage('running')}|{bound}": 1})
    first = next(
        dict(labels)["le"]
        for (name, labels), value in samples.items()
        if name == "tallystick_stage_duration_seconds_bucket" and value == 1
    )
    assert first == le


@pytest.mark.parametrize("error", [ConnectionError("refused"), ValueError("not a number")])
def test_store_that_cannot_be_read_leaves_the_product_families_absent(error: Exception) -> None:
    samples = shown(collector_of(Store(error).read))
    assert {name for name, _ in samples} == OWN
    assert samples[key("tallystick_redis_up")] == 0
    assert samples[key("tallystick_exporter_collect_errors_total")] == 1


def test_numbers_are_gone_not_stale_when_the_store_goes_away_and_back_when_it_returns() -> None:
    store = Store(FULL)
    collector = collector_of(store.read)
    assert shown(collector)[key("tallystick_workers")] == 2
    store.state = TimeoutError("no answer")
    assert key("tallystick_workers") not in shown(collector)
    store.state = FULL
    after = shown(collector)
    assert after[key("tallystick_workers")] == 2
    assert after[key("tallystick_redis_up")] == 1
    assert after[key("tallystick_exporter_collect_errors_total")] == 1


def test_log_says_why_the_store_could_not_be_read(caplog: pytest.LogCaptureFixture) -> None:
    shown(collector_of(Store(ConnectionError("no route to 10.0.0.7")).read))
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: the store cannot be read: ConnectionError: no route to 10.0.0.7"
    ]


def test_log_says_once_a_while_that_the_store_cannot_be_read_and_when_it_can_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    store = Store(ConnectionError("refused"))
    collector = collector_of(store.read)
    for _ in range(5):
        shown(collector)
    store.state = FULL
    shown(collector)
    shown(collector)
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: the store cannot be read: ConnectionError: refused",
        "metrics: the store is read again, after 0 s",
    ]
    store.state = ConnectionError("refused again")
    shown(collector)
    assert "refused again" in caplog.text


def test_store_is_read_once_for_each_scrape_and_not_when_registering() -> None:
    store = Store(FULL)
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector_of(store.read))
    assert store.reads == 0
    generate_latest(registry)
    generate_latest(registry)
    assert store.reads == 2


@pytest.mark.parametrize("state", [FULL, Snapshot(), ConnectionError()], ids=repr)
def test_both_formats_parse_and_say_the_same(state: Snapshot | Exception) -> None:
    registry = CollectorRegistry()
    registry.register(collector_of(Store(state).read))
    classic = samples_in(parse_text(generate_latest(registry).decode()))
    strict = samples_of_openmetrics(openmetrics_of(registry))
    assert classic.keys() == strict.keys()
    varying = {
        key("tallystick_exporter_collect_duration_seconds"),
        key("tallystick_exporter_collect_errors_total"),
    }
    assert {part for part in classic if classic[part] != strict[part]} <= varying


def test_no_series_says_when_a_counter_was_created() -> None:
    registry = CollectorRegistry()
    registry.register(collector_of(lambda: FULL))
    assert "_created" not in openmetrics_of(registry)


def test_number_of_series_does_not_depend_on_the_number_of_actions() -> None:
    few = shown(collector_of(lambda: FULL))
    counted = {counters.transition("bank.transfer", "running"): 3_000_000}
    more = replace(FULL, counters=counted, actions={"running": 1_000_000}, leases_active=1_000_000)
    assert few.keys() == shown(collector_of(lambda: more)).keys()
