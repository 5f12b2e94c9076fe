"""Who else could write to this server, and what could we do to it by accident?"""

from enum import Enum

from tallystick.jobs.checks.facts import Denied, Facts, is_loopback, known
from tallystick.jobs.checks.finding import Answer, Check, ok, option_remedy, refuse, warn

_ADMIN = ("enable-debug-command", "enable-module-command", "enable-protected-configs")


class _Reach(Enum):
    SOCKET = "by unix socket only"
    HOST = "from its own host only"
    NETWORK = "from the network"


def _reach(facts: Facts) -> _Reach:
    """From where the server listens, as far as can be told."""
    endpoint = known(facts.endpoint)
    if endpoint.remote:
        return _Reach.NETWORK
    if isinstance(facts.config, Denied):
        return _Reach.HOST if endpoint.host else _Reach.SOCKET
    if facts.config.get("port", "0") == "0" and facts.config.get("tls-port", "0") == "0":
        return _Reach.SOCKET
    addresses = facts.option("bind").replace("-", " ").split()
    return _Reach.HOST if addresses and all(map(is_loopback, addresses)) else _Reach.NETWORK


def _default_user(facts: Facts) -> Answer:
    if not known(facts.passwordless):
        return ok("a password is asked")
    reach = _reach(facts)
    if reach is _Reach.NETWORK and not known(facts.endpoint).remote and _protected(facts):
        reach = _Reach.HOST
    found = f"no password is asked, and the server can be reached {reach.value}"
    remedy = f"{user_remedy(facts)}; then redis-cli ACL SETUSER default off"
    if reach is _Reach.HOST:
        return warn(found, remedy)
    if reach is _Reach.SOCKET or _certificates(facts):
        return ok(found)
    return refuse(found, remedy)


def _protected(facts: Facts) -> bool:
    """Whether the server turns away whoever comes from the network without a password."""
    return not isinstance(facts.config, Denied) and facts.option("protected-mode") == "yes"


def _certificates(facts: Facts) -> bool:
    """Whether only TLS is listened on, and clients must show a certificate."""
    return (
        not isinstance(facts.config, Denied)
        and facts.option("port") == "0"
        and facts.config.get("tls-auth-clients") == "yes"
    )


def user_remedy(facts: Facts) -> str:
    """How to make a user for workers that may do what they must and nothing dangerous."""
    rules = " ".join(f"'{rule}'" for rule in worker_rules(known(facts.endpoint).namespace))
    return (
        f"redis-cli ACL SETUSER tallystick on '>PASSWORD' {rules}, then redis-cli ACL SAVE, and"
        " tallystick:PASSWORD@ in TALLYSTICK_REDIS_URL"
    )


def worker_rules(namespace: str) -> tuple[str, ...]:
    """The ACL rules of a worker; the doctor and RQ need the commands that are given back."""
    return (
        f"~{{{namespace}}}:*",
        "~rq:*",
        "&rq:*",
        "+@all",
        "-@dangerous",
        "-script|flush",
        "-function",
        "+info",
        "+client|list",
        "+config|get",
        "+acl|whoami",
        "+acl|dryrun",
    )


def _protected_mode(facts: Facts) -> Answer:
    found = f"protected-mode {facts.option('protected-mode')}, bind {facts.option('bind')}"
    if facts.option("protected-mode") == "yes" or _reach(facts) is not _Reach.NETWORK:
        return ok(found)
    remedy = option_remedy("protected-mode", "yes")
    return refuse(found, remedy) if known(facts.passwordless) else warn(found, remedy)


def _encryption(facts: Facts) -> Answer:
    endpoint = known(facts.endpoint)
    if endpoint.encrypted:
        return ok("TLS")
    if not endpoint.remote:
        return ok("nothing leaves this host")
    return warn(
        f"plain text to {endpoint.host}",
        "Let the server listen on `tls-port`, and use TALLYSTICK_REDIS_URL=rediss://…",
    )


def _admin_commands(facts: Facts) -> Answer:
    bad = [name for name in _ADMIN if facts.option(name) != "no"]
    if bad:
        return refuse(
            ", ".join(f"{name} {facts.option(name)}" for name in bad),
            f"The line `{bad[0]} no` in redis.conf, and a restart of the server",
        )
    return ok("DEBUG, MODULE and protected options are closed")


def _user(facts: Facts) -> Answer:
    user = known(facts.access).user
    if user == "default" and known(facts.endpoint).host:
        return warn("workers are the user `default`", user_remedy(facts))
    return ok(f"user {user}")


def _commands(facts: Facts) -> Answer:
    access = known(facts.access)
    if not access.dangerous:
        return ok(f"user {access.user} may run none of the dangerous commands")
    found = f"user {access.user} may run {', '.join(access.dangerous)}"
    return (refuse if known(facts.endpoint).host else warn)(found, user_remedy(facts))


CHECKS = (
    Check(
        "default-user",
        "Whoever reaches a server without a password can delete or delay every action.",
        _default_user,
    ),
    Check(
        "protected-mode",
        "It is the last thing between an open port and a server without a password.",
        _protected_mode,
    ),
    Check(
        "encryption",
        "On the way to the server, parameters and the password can be read and changed.",
        _encryption,
    ),
    Check(
        "admin-commands",
        "With them any client can crash the server, load code into it or move its files.",
        _admin_commands,
    ),
    Check(
        "acl-user",
        "One user for everything means that a proposer can do what only a worker should.",
        _user,
    ),
    Check(
        "acl-commands",
        "One FLUSHALL by mistake, or by an injected job, and every record is gone.",
        _commands,
    ),
)
