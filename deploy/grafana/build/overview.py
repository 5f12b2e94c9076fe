"""The dashboard that the pages link to: from "does a person have to act?" down to the machinery."""

from deploy.grafana.build.house import (
    RUNBOOKS,
    Board,
    Panel,
    Query,
    Row,
    lately,
    lines,
    listed,
    numbers,
    once,
    per_minute,
    series,
    total,
    variable,
    words,
)
from tallystick.metrics import catalog

UID = "tallystick"
ACTION_TYPE_UID = "tallystick-action-type"

NONE_IS_GOOD = ((None, "green"), (1.0, "red"))
MANY_IS_ODD = ((None, "green"), (1.0, "orange"))
SOME_IS_GOOD = ((None, "red"), (1.0, "green"))

OURS = 'alertname=~"Tallystick.*"'
FIRING = f'ALERTS{{{OURS}, alertstate="firing"}}'
FAILURES = 'to_state=~"rolled_back|rollback_failed|unknown|corrupt|failed|precondition_failed"'
BY_PEOPLE = 'stage="waiting_for_approval"'


def needs_a_person() -> Row:
    open_calls = once(series(catalog.ATTENTION_OPEN))
    return Row(
        "Needs a person",
        [
            (
                6,
                numbers(
                    "Open calls, by reason",
                    "Actions that wait for a person. Only `tallystick resolve` and `tallystick"
                    " acknowledge` take one off; find them with `tallystick list --attention`.",
                    Query(f"sum by (reason) ({open_calls})", "{{reason}}"),
                    steps=NONE_IS_GOOD,
                ),
            ),
            (
                6,
                listed(
                    "Open calls, by type",
                    "Which types they are of: stop a type that fails again and again with"
                    " `tallystick stop --action NAME`.",
                    Query(f"max by (action_type, reason) ({open_calls}) > 0"),
                    nothing="nobody is called",
                ),
            ),
            (
                6,
                listed(
                    "Firing alerts, and for how long",
                    "The value is the age of the alert. Each has a runbook under its name.",
                    Query(
                        "max by (alertname, severity, action_type)"
                        f" (time() - ALERTS_FOR_STATE{{{OURS}}})"
                        " and on (alertname, action_type)"
                        f" max by (alertname, action_type) ({FIRING})"
                    ),
                    unit="s",
                    nothing="nothing fires",
                ),
            ),
            (
                6,
                words(
                    "What to do",
                    "1. `tallystick list --attention`\n"
                    "2. `tallystick show ID`: what was to be done, what the target showed\n"
                    "3. look at the target itself\n"
                    "4. `tallystick resolve ID --to STATE --by WHO --evidence TEXT`, or"
                    " `tallystick acknowledge ID --by WHO`\n\n"
                    f"Runbooks: [verification failed]({RUNBOOKS}TallystickVerificationFailed) ·"
                    f" [rollback failed]({RUNBOOKS}TallystickRollbackFailed) ·"
                    f" [outcome unknown]({RUNBOOKS}TallystickOutcomeUnknown) ·"
                    f" [corrupt]({RUNBOOKS}TallystickCorruptRecord) ·"
                    f" [not applied]({RUNBOOKS}TallystickNotApplied)",
                ),
            ),
        ],
    )


def flow() -> Row:
    return Row(
        "Flow",
        [
            (
                6,
                lines(
                    "Moves a minute, by new state",
                    "What becomes of actions. No line at all while there is work: see Stalled.",
                    Query(per_minute("to_state", catalog.TRANSITIONS), "{{to_state}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
            (
                6,
                lines(
                    "Actions now, by state",
                    "Where actions are. Final states only grow, until retention removes them.",
                    Query(total("state", series(catalog.ACTIONS)), "{{state}}"),
                ),
            ),
            (
                6,
                lines(
                    "Age of the oldest open action, by state",
                    "An approved one that grows older wants workers; a waiting one, its approver.",
                    Query(
                        f"max by (state) (time() - {once(series(catalog.OLDEST))})",
                        "{{state}}",
                    ),
                    unit="s",
                ),
            ),
            (
                6,
                lines(
                    "Decisions a minute",
                    "What people decided, and what nobody decided in time (expired).",
                    Query(per_minute("decision", catalog.DECISIONS), "{{decision}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
        ],
    )


def correctness() -> Row:
    failures = f"increase({series(catalog.TRANSITIONS, FAILURES)}[$__rate_interval])"
    return Row(
        "Correctness",
        [
            (
                6,
                lines(
                    "Verifications a minute, by answer",
                    "Every effect is looked at. Fails: the target contradicts what was approved."
                    " Inconclusive: it could not be read in time, which proves neither.",
                    Query(per_minute("result", catalog.VERIFICATIONS), "{{result}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
            (
                6,
                lines(
                    "Ends that are no success",
                    "A point is one action: its labels hold `action_id`, for `tallystick show`.",
                    Query(total("to_state", failures), "{{to_state}}", exemplars=True),
                ),
            ),
            (
                6,
                lines(
                    "Preconditions a minute, by answer",
                    "Looks at the target before the effect. Fails: the world moved on since the"
                    " approval, and nothing was done.",
                    Query(per_minute("result", catalog.PRECONDITIONS), "{{result}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
            (
                6,
                numbers(
                    "In the time that is shown",
                    "Rollbacks by outcome; proposals answered from their idempotency key; moves"
                    " that were stale, or of a worker whose lease had passed on; attempts to run"
                    " what was not approved; wake-ups of a type that no worker knew.",
                    Query(lately("result", catalog.ROLLBACKS), "{{result}}"),
                    Query(f"sum({lately('action_type', catalog.REPLAYS)})", "same key again"),
                    Query(f"sum({lately('to_state', catalog.CONFLICTS)})", "refused moves"),
                    Query(f"sum({lately('job', catalog.FENCING_REJECTIONS)})", "lease passed on"),
                    Query(lately("kind", catalog.SECURITY_EVENTS), "{{kind}}"),
                    Query(f"sum({lately('action_type', catalog.UNKNOWN_TYPES)})", "unknown type"),
                    steps=MANY_IS_ODD,
                    whole=True,
                ),
            ),
        ],
    )


def latency() -> Row:
    def quantile(share: float, *matchers: str) -> str:
        buckets = series(catalog.STAGE_DURATION, *matchers, suffix="_bucket")
        rates = once(f"rate({buckets}[$__rate_interval])")
        return f"histogram_quantile({share:g}, sum by (stage, le) ({rates}))"

    def panel(title: str, description: str, *matchers: str) -> tuple[int, Panel]:
        shares = (0.5, 0.95)
        queries = [
            Query(quantile(share, *matchers), f"{{{{stage}}}} p{share * 100:g}") for share in shares
        ]
        return 8, lines(title, description, *queries, unit="s")

    return Row(
        "Time in each state (median and 95th percentile)",
        [
            panel(
                "Waiting for people",
                "From the proposal to the last vote. Nothing here is the machine's fault.",
                BY_PEOPLE,
            ),
            panel(
                "Waiting for a worker",
                "From the last vote to the claim, and to the intent. Long: add workers.",
                'stage="approved"',
            ),
            panel(
                "Acting, looking, undoing",
                "The effect, its verification, its rollback. Long: a slow target.",
                'stage=~"running|verifying|rolling_back"',
            ),
        ],
    )


def workers() -> Row:
    def age(family: catalog.Family) -> str:
        return f"time() - max({once(series(family))})"

    return Row(
        "Workers, leases, canary",
        [
            (
                5,
                numbers(
                    "Work-horses",
                    "Processes whose heartbeat is fresh. None: approved actions do not run.",
                    Query(f"sum({once(series(catalog.WORKERS))})", "alive"),
                    steps=SOME_IS_GOOD,
                ),
            ),
            (
                5,
                numbers(
                    "Left lying",
                    "Actions that somebody should have looked at; leases that ran out and were not"
                    " taken over; alerts that no channel took. All must be 0.",
                    Query(f"sum({once(series(catalog.OVERDUE))})", "overdue"),
                    Query(f"sum({once(series(catalog.LEASES_OVERDUE))})", "leases run out"),
                    Query(f"sum({once(series(catalog.UNDELIVERED))})", "alerts undelivered"),
                    Query(f"sum({once(series(catalog.STOPPED))})", "stops"),
                    steps=MANY_IS_ODD,
                ),
            ),
            (
                5,
                lines(
                    "Leases and wake-ups",
                    "Actions that a worker holds, and wake-ups in the queue.",
                    Query(f"sum({once(series(catalog.LEASES_ACTIVE))})", "leases held"),
                    Query(f"sum({once(series(catalog.QUEUE_DEPTH))})", "wake-ups in the queue"),
                ),
            ),
            (
                5,
                lines(
                    "Work-horses that did not end by themselves",
                    "Signal: killed, often for want of memory. Deadline: an effect took too long."
                    " Hang: it held an action for eight leases.",
                    Query(
                        total(
                            "reason",
                            f"increase({series(catalog.WORKHORSE_EXITS)}[$__rate_interval])",
                        ),
                        "{{reason}}",
                    ),
                ),
            ),
            (
                4,
                numbers(
                    "Since the last canary",
                    "A canary goes through every stage on a schedule, a drill through rollback:"
                    " `tallystick canary --every 300 --drill`. Old: real actions fare no better.",
                    Query(age(catalog.CANARY_COMMITTED), "committed"),
                    Query(age(catalog.CANARY_ROLLED_BACK), "drill rolled back"),
                    unit="s",
                    nothing="no canary is sent",
                ),
            ),
        ],
    )


def levels() -> Row:
    def recorded(name: str) -> str:
        return f"max by (job) ({series(f'tallystick:{name}')})"

    return Row(
        "Service levels, over 30 days",
        [
            (
                6,
                numbers(
                    "Error budget that is left",
                    "99 % of the verifications hold; 99 % of the approved actions start within a"
                    " minute. Below 0 the level is broken.",
                    Query(
                        f"min by (slo) ({series('tallystick:error_budget:remaining_ratio30d')})",
                        "{{slo}}",
                    ),
                    unit="percentunit",
                    steps=((None, "red"), (0.0, "orange"), (0.25, "green")),
                    nothing="nothing was counted",
                ),
            ),
            (
                9,
                lines(
                    "How fast the budget burns (1 is what the level allows)",
                    "Above 14.4 over an hour it is gone in two days: a page. Above 1 over three"
                    " days: a ticket.",
                    Query(
                        f"{recorded('verification_failures:ratio1h')} / 0.01",
                        "verification, 1 h",
                    ),
                    Query(
                        f"{recorded('verification_failures:ratio6h')} / 0.01",
                        "verification, 6 h",
                    ),
                    Query(f"{recorded('slow_starts:ratio1h')} / 0.01", "start, 1 h"),
                ),
            ),
            (
                9,
                lines(
                    "What was counted, in the last hour",
                    "Below 20 verifications an hour one bad action is no burn rate, and wakes"
                    " nobody by itself.",
                    Query(recorded("verifications:increase1h"), "verifications"),
                    Query(recorded("starts:increase1h"), "starts"),
                ),
            ),
        ],
    )


def redis() -> Row:
    return Row(
        "Redis",
        [
            (
                5,
                numbers(
                    "Can it be read?",
                    "0: actions stand still, and every number of ours is absent.",
                    Query(f"min by (job) ({series(catalog.REDIS_UP)})", "{{job}}"),
                    steps=SOME_IS_GOOD,
                    nothing="no exporter",
                ),
            ),
            (
                5,
                numbers(
                    "Does it keep what it says?",
                    "1 if this part of keeping data on disk is on, or worked the last time.",
                    Query(f"min by (check) ({series(catalog.REDIS_PERSISTENCE)})", "{{check}}"),
                    steps=SOME_IS_GOOD,
                    nothing="the exporter may not ask",
                ),
            ),
            (
                5,
                numbers(
                    "Keys thrown away, replicas",
                    "A key that was evicted may have been an idempotency key: must be 0.",
                    Query(f"max({series(catalog.REDIS_EVICTED)})", "evicted keys"),
                    Query(f"max({series(catalog.REDIS_REPLICAS)})", "replicas"),
                ),
            ),
            (
                9,
                lines(
                    "Memory",
                    "A full server refuses new work and loses nothing. A limit of 0 is none.",
                    Query(f"max by (job) ({series(catalog.REDIS_MEMORY_USED)})", "used, {{job}}"),
                    Query(f"max by (job) ({series(catalog.REDIS_MEMORY_MAX)})", "limit, {{job}}"),
                    unit="bytes",
                ),
            ),
        ],
    )


def monitoring() -> Row:
    return Row(
        "The monitoring itself",
        [
            (
                5,
                numbers(
                    "Exporters",
                    "Scraped and answering, by version. An older one may not know newer families.",
                    Query(f"sum by (version) ({series(catalog.BUILD_INFO)})", "{{version}}"),
                    steps=SOME_IS_GOOD,
                    nothing="no exporter",
                ),
            ),
            (
                7,
                lines(
                    "How long a scrape takes",
                    "Of the exporter as Prometheus sees it, and of reading Redis within it.",
                    Query(f"max by (job) ({series('scrape_duration_seconds')})", "scrape, {{job}}"),
                    Query(
                        f"max by (job) ({series(catalog.COLLECT_DURATION)})",
                        "reading Redis, {{job}}",
                    ),
                    unit="s",
                ),
            ),
            (
                6,
                lines(
                    "What failed on the way to a person",
                    "Reads of Redis, evaluations of rules, notifications. All must be 0.",
                    Query(
                        f"sum(increase({series(catalog.COLLECT_ERRORS)}[$__rate_interval]))",
                        "reads of Redis",
                    ),
                    Query(
                        "sum(increase(prometheus_rule_evaluation_failures_total[$__rate_interval]))",
                        "rules",
                    ),
                    Query(
                        "sum(increase(alertmanager_notifications_failed_total[$__rate_interval]))",
                        "notifications",
                    ),
                ),
            ),
            (
                6,
                lines(
                    "Firing alerts, by severity",
                    "Ours alone; the Watchdog, which always fires, is not counted.",
                    Query(f"count by (severity) ({FIRING})", "{{severity}}"),
                    stacked=True,
                ),
            ),
        ],
    )


def overview() -> Board:
    return Board(
        uid=UID,
        title="Tallystick",
        description="Does a person have to act, is work done, is it right, and can we see?",
        rows=[
            needs_a_person(),
            flow(),
            correctness(),
            latency(),
            workers(),
            levels(),
            redis(),
            monitoring(),
        ],
        variables=[variable("job", "Job", f"label_values({catalog.REDIS_UP.name}, job)")],
        links=[("By action type", ACTION_TYPE_UID)],
    )
