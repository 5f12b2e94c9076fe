"""Would a failover keep what was acknowledged?"""

from tallystick.jobs.checks.facts import WAITAOF_SINCE, Facts, Replication, known
from tallystick.jobs.checks.finding import Answer, Check, ok, option_remedy, refuse, warn

_FEWEST = 2
_LONGEST_LAG = 5
_AT_ONCE = 0.1
_PROBES = 5

_NONE = "no replicas"


def _alone(replication: Replication) -> bool:
    return not (replication.electable or replication.watched)


def _count(facts: Facts) -> Answer:
    replication, server = known(facts.replication), known(facts.server)
    if _alone(replication):
        return ok(_NONE)
    found = f"{replication.electable} electable replicas, {len(server.replicas)} connected"
    if replication.electable < _FEWEST:
        return refuse(found, "Run two electable replicas at least (or none, and no Sentinel)")
    if len(server.replicas) < replication.electable:
        return refuse(
            found, "Bring back the replica that is away, or take it out: SENTINEL RESET name"
        )
    return ok(found)


def _link(facts: Facts) -> Answer:
    server = known(facts.server)
    bad = [replica for replica in server.replicas if not _linked(replica.state, replica.lag)]
    if bad:
        told = ", ".join(f"{r.address} is {r.state}, {r.lag} s silent" for r in bad)
        return refuse(told, "See that replica's log; redis-cli INFO replication on both sides")
    return ok(f"{len(server.replicas)} replicas keep up" if server.replicas else _NONE)


def _linked(state: str, lag: int) -> bool:
    return state == "online" and lag <= _LONGEST_LAG


def _fewest(facts: Facts) -> Answer:
    if _alone(known(facts.replication)):
        return ok(_NONE)
    found = facts.option("min-replicas-to-write")
    if int(found) < 1:
        return refuse(f"min-replicas-to-write {found}", option_remedy("min-replicas-to-write", "1"))
    return ok(f"min-replicas-to-write {found}")


def _longest_lag(facts: Facts) -> Answer:
    if _alone(known(facts.replication)):
        return ok(_NONE)
    found = facts.option("min-replicas-max-lag")
    if not 1 <= int(found) <= _LONGEST_LAG:
        return refuse(f"min-replicas-max-lag {found}", option_remedy("min-replicas-max-lag", "2"))
    return ok(f"min-replicas-max-lag {found}")


def _barrier(facts: Facts) -> Answer:
    barrier = known(facts.replication).barrier
    if barrier is None:
        return ok(_NONE)
    server = known(facts.server)
    if server.compatible < WAITAOF_SINCE:
        return refuse(
            f"{server.name} {server.version} has no WAITAOF",
            "Upgrade the server to Redis 7.2 or newer, or to Valkey",
        )
    reached = known(barrier)
    found = (
        f"a write was on {reached.local} local disk and {reached.replicas} of {reached.wanted}"
        " replicas' disks"
    )
    if reached.local < 1 or reached.replicas < reached.wanted:
        return refuse(
            found,
            "Give every replica `appendonly yes` and a link that keeps up, and let"
            " TALLYSTICK_REPLICAS be their number",
        )
    if facts.waits_for >= reached.wanted:
        return ok(found)
    told = f"{found}, but Tallystick waits for {facts.waits_for} (TALLYSTICK_REPLICAS)"
    remedy = f"Set TALLYSTICK_REPLICAS={reached.wanted} for all that propose, approve and work"
    if facts.waits_for or known(facts.replication).watched:
        return refuse(told, remedy)
    return warn(
        f"{told}: a failover may lose the last moments",
        f"{remedy}; or before a failover by hand: tallystick stop, and wait until nothing is in"
        " flight; after any: look at what the workers halted (tallystick list --attention)",
    )


def _premature(facts: Facts) -> Answer:
    seconds = known(facts.premature)
    if not seconds:
        return ok("WAITAOF is not what makes writes durable here")
    if len(seconds) >= _PROBES and max(seconds) < _AT_ONCE:
        server = known(facts.server)
        return refuse(
            f"{len(seconds)} writes in a row confirmed within {max(seconds) * 1000:.1f} ms under"
            f" everysec: {server.name} {server.version} says yes before the fsync",
            option_remedy("appendfsync", "always"),
        )
    return ok("WAITAOF waits for the fsync")


CHECKS = (
    Check(
        "replica-count",
        "With fewer than two, one lost node either stops all writes or leaves a single copy.",
        _count,
    ),
    Check(
        "replica-link",
        "A replica that does not keep up, once promoted, has never heard of the latest actions.",
        _link,
    ),
    Check(
        "min-replicas-to-write",
        "At 0, a primary that was cut off goes on acknowledging writes that the failover discards.",
        _fewest,
    ),
    Check(
        "min-replicas-max-lag",
        "It bounds for how long a primary that was cut off goes on acknowledging.",
        _longest_lag,
    ),
    Check(
        "replica-barrier",
        "A write that not every replica has on disk is lost if the one without it is promoted.",
        _barrier,
        essential=True,
    ),
    Check(
        "waitaof-premature",
        "A confirmation that comes before the fsync confirms nothing.",
        _premature,
    ),
)
