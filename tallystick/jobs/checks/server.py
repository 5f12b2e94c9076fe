"""Is this a server that can be written to, and that knows our commands?"""

from tallystick.jobs.checks.facts import Facts, heard, known
from tallystick.jobs.checks.finding import Answer, Check, ok, refuse, warn

_OLDEST = (7, 0)
_CROWDED = 0.8


def _answers(facts: Facts) -> Answer:
    if facts.unreachable:
        return refuse(facts.unreachable, "Start the server, or correct TALLYSTICK_REDIS_URL")
    return ok("it answers")


def _version(facts: Facts) -> Answer:
    server = known(facts.server)
    found = f"{server.name} {server.version}"
    if server.compatible < _OLDEST:
        return refuse(found, "Upgrade the server to Redis 7.0 or newer, or to Valkey")
    return ok(found)


def _role(facts: Facts) -> Answer:
    role = heard(known(facts.server).role, "the role")
    if role != "master":
        return refuse(
            f"a replica (role {role})",
            "Point TALLYSTICK_REDIS_URL at the primary, or at Sentinel:"
            " redis+sentinel://host:26379,host:26379/service/0",
        )
    return ok("the primary")


def _loading(facts: Facts) -> Answer:
    if known(facts.server).loading:
        return refuse("still loading its data", "Wait; `redis-cli INFO persistence` shows the rest")
    return ok("loaded")


def _cluster(facts: Facts) -> Answer:
    if known(facts.server).clustered:
        return refuse(
            "cluster mode is on",
            "Use a server with `cluster-enabled no`; to scale out, give each"
            " TALLYSTICK_NAMESPACE a primary of its own",
        )
    return ok("no cluster")


def _clients(facts: Facts) -> Answer:
    server = known(facts.server)
    found = f"{server.clients} of {server.most_clients or 'any number of'} connections"
    if server.most_clients and server.clients >= _CROWDED * server.most_clients:
        return warn(found, "Find who holds them (redis-cli CLIENT LIST), or raise `maxclients`")
    return ok(found)


CHECKS = (
    Check(
        "server-answers",
        "Nothing can be stored, taken or recovered while the server is away.",
        _answers,
        local=True,
    ),
    Check(
        "server-version",
        "Older servers lack commands that the protocol and this check rest on.",
        _version,
        essential=True,
    ),
    Check(
        "server-role",
        "A replica refuses writes, or takes writes that its primary will throw away.",
        _role,
        essential=True,
    ),
    Check(
        "server-loading",
        "A server that still loads shows a past in which done actions look open.",
        _loading,
        essential=True,
    ),
    Check(
        "cluster-mode",
        "RQ's client does not follow a cluster's redirects, so wake-ups would be lost.",
        _cluster,
    ),
    Check(
        "client-limit",
        "At `maxclients` the server turns workers away that come to recover an action.",
        _clients,
    ),
)
