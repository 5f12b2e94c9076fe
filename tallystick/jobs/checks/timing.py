"""Do clocks, deadlines and the client fit together?"""

from tallystick.jobs.checks.facts import Facts, known
from tallystick.jobs.checks.finding import Answer, Check, ok, refuse, warn

_SKEW_SECONDS = 2.0
_STEP_SECONDS = 1.0
_RQ_MAJOR = "3"

_SYNC = "Synchronise both hosts' clocks (chronyc makestep; chronyc tracking), slewing, not stepping"


def _skew(facts: Facts) -> Answer:
    now = known(facts.clock).now
    apart = now.redis - now.local
    found = f"Redis is {abs(apart):.3f} s {'ahead of' if apart > 0 else 'behind'} this host"
    return refuse(found, _SYNC) if abs(apart) - now.trip / 2 > _SKEW_SECONDS else ok(found)


def _step(facts: Facts) -> Answer:
    clock = known(facts.clock)
    if clock.before is None:
        return ok("watched from now on")
    passed = clock.now.steady - clock.before.steady
    slip = clock.now.redis - clock.before.redis - passed
    known_to = (clock.now.trip + clock.before.trip) / 2
    if abs(slip) - known_to > _STEP_SECONDS:
        return refuse(
            f"the clock of Redis jumped {slip:+.1f} s within the last {passed:.0f} s",
            f"{_SYNC}; the next look that finds it steady clears this",
        )
    return ok(f"steady for {passed:.1f} s")


def _lease(facts: Facts) -> Answer:
    t = facts.timing
    effect = t.effect + 2 * t.trip + t.margin
    found = (
        f"effect {t.effect:g} + verification {t.verify:g} + 2 x {t.trip:.3f} trip"
        f" + margin {t.margin:g} s, lease {t.lease:g} s"
    )
    if effect >= t.lease:
        return refuse(
            f"the effect does not fit: {found}",
            f"TALLYSTICK_LEASE_SECONDS={_above(effect + t.verify)}, or a shorter"
            " TALLYSTICK_EFFECT_DEADLINE_SECONDS, or a Redis that is nearer",
        )
    if effect + t.verify >= t.lease:
        return warn(
            f"verification may outlive the lease, which the worker parent then renews: {found}",
            f"TALLYSTICK_LEASE_SECONDS={_above(effect + t.verify)}, or a shorter"
            " TALLYSTICK_VERIFY_DEADLINE_SECONDS",
        )
    return ok(found)


def _above(seconds: float) -> int:
    return int(seconds) + 1


def _retries(facts: Facts) -> Answer:
    found = known(facts.client).retries
    if found:
        return refuse(
            f"the client re-sends {found} times by itself",
            "Take retry options out of TALLYSTICK_REDIS_URL",
        )
    return ok("the client sends once")


def _timeout(facts: Facts) -> Answer:
    found, most = known(facts.client).timeout, facts.timing.lease / 3
    if not found or found > most + 1e-6:
        return refuse(
            f"socket time-out {found or 'none'}, a third of the lease is {most:g} s",
            "Take socket_timeout out of TALLYSTICK_REDIS_URL; the right one is the default",
        )
    return ok(f"socket time-out {found:g} s, a third of the lease is {most:g} s")


def _rq(facts: Facts) -> Answer:
    found = facts.rq_version or "not installed"
    if found.partition(".")[0] != _RQ_MAJOR:
        return refuse(f"RQ {found}", "pip install 'rq>=3.0,<4'")
    return ok(f"RQ {found}")


CHECKS = (
    Check(
        "clock-skew",
        "Expiry and leases go by the clock of Redis: people and targets that read another clock"
        " are told wrong times.",
        _skew,
        essential=True,
    ),
    Check(
        "clock-step",
        "A jump ends every lease at once, or keeps a dead worker's lease alive.",
        _step,
        essential=True,
    ),
    Check(
        "lease-fit",
        "An effect that may still run when its lease has ended can meet the next worker's.",
        _lease,
        essential=True,
        local=True,
    ),
    Check(
        "client-retries",
        "A client that re-sends after a lost reply carries out the same command twice.",
        _retries,
        local=True,
    ),
    Check(
        "client-timeout",
        "A worker that waits longer for Redis finds its lease gone when it wakes.",
        _timeout,
        local=True,
    ),
    Check(
        "rq-version",
        "Only RQ 3 was tried under kills, and others name their internals otherwise.",
        _rq,
        local=True,
    ),
)
