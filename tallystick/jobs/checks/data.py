"""Is what lies in Redis ours, whole, and told to people?"""

from tallystick.jobs.checks.facts import Facts, Sample, known
from tallystick.jobs.checks.finding import Answer, Check, ok, refuse, warn

_ALERT_SECONDS = 60.0


def _expiry(facts: Facts) -> Answer:
    sample = known(facts.sample)
    if sample.expiring:
        return refuse(
            f"keys that will vanish: {_some(sample.expiring)} (of {_size(sample)})",
            f"redis-cli PERSIST '{sample.expiring[0]}' for each, and find who set the expiry",
        )
    return ok(f"no expiry on {_size(sample)}")


def _shared(facts: Facts) -> Answer:
    sample = known(facts.sample)
    if sample.foreign:
        return warn(
            f"others keep keys here: {_some(sample.foreign)} (of {_size(sample)})",
            "Give Tallystick a server of its own, or at least its own memory limit and ACL user",
        )
    return ok(f"nothing of others among {_size(sample)}")


def _secret(facts: Facts) -> Answer:
    sample = known(facts.sample)
    if sample.secrets:
        return refuse(
            f"the private approval key lies in {_some(sample.secrets)}",
            f"redis-cli DEL '{sample.secrets[0]}', take the key out of trusted.json everywhere, and"
            " make a new one: it also lies in the append-only file and in backups",
        )
    return ok(f"no private key of this machine among {sample.seen} sampled keys")


def _alerts(facts: Facts) -> Answer:
    outbox = known(facts.outbox)
    if not outbox.waiting:
        return ok("no alert waits")
    remedy = "Start a worker (tallystick worker), and see its log for what its alert channel says"
    if outbox.oldest is None:
        return warn(f"{outbox.waiting} undelivered alerts, age not known", remedy)
    found = f"{outbox.waiting} undelivered alerts, the oldest for {outbox.oldest:.0f} s"
    return refuse(found, remedy) if outbox.oldest > _ALERT_SECONDS else ok(found)


def _some(keys: tuple[str, ...]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _size(sample: Sample) -> str:
    return f"{sample.ours} keys of ours in {sample.seen} sampled"


CHECKS = (
    Check(
        "key-expiry",
        "When an idempotency key expires the same request is done again; when a record or journal"
        " expires nobody can tell what was done.",
        _expiry,
    ),
    Check(
        "shared-instance",
        "Others' traffic can fill this server's memory, and their FLUSHALL is ours too.",
        _shared,
    ),
    Check(
        "signing-key-stored",
        "Whoever reads the private key out of Redis can approve anything.",
        _secret,
    ),
    Check(
        "alerts-delivered",
        "A failure that nobody is told of is a silent failure.",
        _alerts,
    ),
)
