"""The dashboard of one action type, or of some beside each other."""

from deploy.grafana.build.house import (
    Board,
    Query,
    Row,
    lately,
    lines,
    numbers,
    per_minute,
    series,
    total,
    variable,
)
from deploy.grafana.build.overview import (
    ACTION_TYPE_UID,
    FAILURES,
    MANY_IS_ODD,
    NONE_IS_GOOD,
    UID,
)
from tallystick.metrics import catalog

CHOSEN = 'action_type=~"$action_type"'
CHOSEN_OR_ALL = 'action_type=~"[*]|$action_type"'
HOLDS = 'result="holds"'


def now() -> Row:
    return Row(
        "Now",
        [
            (
                8,
                numbers(
                    "Open calls, by reason",
                    "Actions of these types that wait for a person.",
                    Query(total("reason", series(catalog.ATTENTION_OPEN, CHOSEN)), "{{reason}}"),
                    steps=NONE_IS_GOOD,
                ),
            ),
            (
                8,
                numbers(
                    "Stopped",
                    "1 while no action of the type may begin (`tallystick stop`); `*` is all.",
                    Query(
                        f"max by (action_type) ({series(catalog.STOPPED, CHOSEN_OR_ALL)})",
                        "{{action_type}}",
                    ),
                    steps=MANY_IS_ODD,
                ),
            ),
            (
                8,
                numbers(
                    "Share of verifications that hold, in the time that is shown",
                    "Of those that were finished. Inconclusive ones count against it.",
                    Query(
                        f"{lately('action_type', catalog.VERIFICATIONS, CHOSEN, HOLDS)}"
                        f" / ({lately('action_type', catalog.VERIFICATIONS, CHOSEN)} > 0)",
                        "{{action_type}}",
                    ),
                    unit="percentunit",
                    steps=((None, "red"), (0.99, "green")),
                    nothing="none was finished",
                ),
            ),
        ],
        height=6,
    )


def outcomes() -> Row:
    failures = f"increase({series(catalog.TRANSITIONS, CHOSEN, FAILURES)}[$__rate_interval])"
    return Row(
        "What becomes of them",
        [
            (
                8,
                lines(
                    "Moves a minute, by new state",
                    "From the proposal to the end.",
                    Query(per_minute("to_state", catalog.TRANSITIONS, CHOSEN), "{{to_state}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
            (
                8,
                lines(
                    "Committed a minute, by type",
                    "Only what a re-read of the target proved.",
                    Query(
                        per_minute(
                            "action_type", catalog.TRANSITIONS, CHOSEN, 'to_state="committed"'
                        ),
                        "{{action_type}}",
                    ),
                    unit="cpm",
                ),
            ),
            (
                8,
                lines(
                    "Ends that are no success, by type",
                    "A point is one action: its labels hold `action_id`, for `tallystick show`.",
                    Query(
                        total("action_type, to_state", failures),
                        "{{action_type}} {{to_state}}",
                        exemplars=True,
                    ),
                ),
            ),
        ],
    )


def looks() -> Row:
    return Row(
        "What was seen",
        [
            (
                8,
                lines(
                    "Verifications a minute, by answer",
                    "Looks at the target after the effect.",
                    Query(per_minute("result", catalog.VERIFICATIONS, CHOSEN), "{{result}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
            (
                8,
                lines(
                    "Preconditions a minute, by answer",
                    "Looks at the target before it.",
                    Query(per_minute("result", catalog.PRECONDITIONS, CHOSEN), "{{result}}"),
                    unit="cpm",
                    stacked=True,
                ),
            ),
            (
                8,
                numbers(
                    "In the time that is shown",
                    "Rollbacks by outcome; proposals answered from their idempotency key; wake-ups"
                    " of a type or version that the worker did not know.",
                    Query(lately("result", catalog.ROLLBACKS, CHOSEN), "{{result}}"),
                    Query(f"sum({lately('action_type', catalog.REPLAYS, CHOSEN)})", "same key"),
                    Query(
                        f"sum({lately('action_type', catalog.UNKNOWN_TYPES, CHOSEN)})",
                        "unknown type",
                    ),
                    steps=MANY_IS_ODD,
                    whole=True,
                ),
            ),
        ],
    )


def action_type() -> Board:
    return Board(
        uid=ACTION_TYPE_UID,
        title="Tallystick: action types",
        description="What becomes of the actions of a type, and what their targets showed.",
        rows=[now(), outcomes(), looks()],
        variables=[
            variable("job", "Job", f"label_values({catalog.REDIS_UP.name}, job)"),
            variable(
                "action_type",
                "Action type",
                f"label_values({series(catalog.TRANSITIONS)}, action_type)",
            ),
        ],
        links=[("Overview", UID)],
    )
