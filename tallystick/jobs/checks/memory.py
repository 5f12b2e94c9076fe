"""Does the server keep every key until we remove it?"""

from tallystick.jobs.checks.facts import Facts, heard, known
from tallystick.jobs.checks.finding import Answer, Check, ok, option_remedy, refuse, warn

_NARROW, _FULL = 0.80, 0.95


def _policy(facts: Facts) -> Answer:
    found = heard(known(facts.server).policy, "maxmemory_policy")
    if found != "noeviction":
        return refuse(f"maxmemory-policy {found}", option_remedy("maxmemory-policy", "noeviction"))
    return ok("maxmemory-policy noeviction")


def _evicted(facts: Facts) -> Answer:
    found = known(facts.server).evicted
    if found:
        return refuse(
            f"{found} keys were evicted since the server started",
            "Find out which actions are missing (compare with the exported journal and with the"
            " targets), then redis-cli CONFIG RESETSTAT",
        )
    return ok("nothing was evicted")


def _room(facts: Facts) -> Answer:
    server = known(facts.server)
    if not server.limit:
        return ok("no maxmemory")
    share = server.used / server.limit
    found = f"{share:.0%} of maxmemory in use ({server.used} of {server.limit} bytes)"
    remedy = "Run retention, or raise `maxmemory` (redis-cli CONFIG SET maxmemory BYTES)"
    if share > _FULL:
        return refuse(found, f"Propose nothing more until there is room. {remedy}")
    return warn(found, remedy) if share > _NARROW else ok(found)


CHECKS = (
    Check(
        "maxmemory-policy",
        "Any other policy may evict an idempotency key, and the same action can be done twice.",
        _policy,
        essential=True,
    ),
    Check(
        "evicted-keys",
        "What was evicted may have been an action, its journal or its idempotency key.",
        _evicted,
        essential=True,
    ),
    Check(
        "memory-room",
        "A full server refuses writes: nothing new begins, and what is under way cannot be stored.",
        _room,
    ),
)
