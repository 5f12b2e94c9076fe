"""Does the server keep what it has acknowledged?"""

from tallystick.jobs.checks.facts import Facts, heard, known
from tallystick.jobs.checks.finding import Answer, Check, ok, option_remedy, refuse, warn


def _appendonly(facts: Facts) -> Answer:
    if not known(facts.server).aof_enabled:
        return refuse("appendonly no", option_remedy("appendonly", "yes"))
    return ok("appendonly yes")


def _appendfsync(facts: Facts) -> Answer:
    found = facts.option("appendfsync")
    if found != "always":
        return refuse(f"appendfsync {found}", option_remedy("appendfsync", "always"))
    return ok("appendfsync always")


def _on_rewrite(facts: Facts) -> Answer:
    found = facts.option("no-appendfsync-on-rewrite")
    if found != "no":
        return refuse(
            f"no-appendfsync-on-rewrite {found}", option_remedy("no-appendfsync-on-rewrite", "no")
        )
    return ok("fsync goes on during a rewrite")


def _aof_status(facts: Facts) -> Answer:
    server = known(facts.server)
    if heard(server.last_write, "aof_last_write_status") != "ok":
        return refuse(
            f"the last write to the append-only file: {server.last_write}",
            "Free disk space, see the server's log; it mends itself at the next write that works",
        )
    if heard(server.last_rewrite, "aof_last_bgrewrite_status") != "ok":
        return refuse(
            f"the last rewrite of the append-only file: {server.last_rewrite}",
            "Free disk space and memory, see the server's log, then redis-cli BGREWRITEAOF",
        )
    return ok("the last write and rewrite were fine")


def _aof_user(facts: Facts) -> Answer:
    lacking = known(facts.unloadable)
    if lacking:
        return refuse(
            f"the user `default` may not run {', '.join(lacking)}",
            "redis-cli ACL SETUSER default off '~*' '&*' +@all, then redis-cli ACL SAVE: `off` is"
            " what keeps everybody out",
        )
    return ok("the user `default` may run what the append-only file holds")


def _snapshot_status(facts: Facts) -> Answer:
    found = heard(known(facts.server).last_snapshot, "rdb_last_bgsave_status")
    if found != "ok":
        return refuse(
            f"the last snapshot: {found}",
            "Free disk space and memory, see the server's log, then redis-cli BGSAVE",
        )
    return ok("the last snapshot was fine")


def _stop_writes(facts: Facts) -> Answer:
    found = facts.option("stop-writes-on-bgsave-error")
    if found != "yes":
        return refuse(
            f"stop-writes-on-bgsave-error {found}",
            option_remedy("stop-writes-on-bgsave-error", "yes"),
        )
    return ok("writes stop when a snapshot fails")


def _torn_tail(facts: Facts) -> Answer:
    if facts.option("aof-load-truncated") == "no":
        return ok("a torn file is not loaded")
    if facts.option("appendfsync") == "always":
        return ok("a torn tail is cut off, and held nothing acknowledged")
    return warn(
        "aof-load-truncated yes without appendfsync always",
        option_remedy("aof-load-truncated", "no"),
    )


CHECKS = (
    Check(
        "appendonly",
        "Without the append-only file a restart loses every action since the last snapshot.",
        _appendonly,
        essential=True,
    ),
    Check(
        "appendfsync",
        "Short of `always`, a power cut takes writes that were acknowledged: an intent can vanish"
        " whose effect has happened.",
        _appendfsync,
        essential=True,
    ),
    Check(
        "fsync-on-rewrite",
        "Otherwise nothing is fsynced while the file is rewritten, whatever appendfsync says.",
        _on_rewrite,
        essential=True,
    ),
    Check(
        "aof-status",
        "A server that cannot write its file keeps what it acknowledges in memory only.",
        _aof_status,
        essential=True,
    ),
    # Seen with Redis 7.0.15 and Valkey 8.1.8: whatever several commands wrote together (a script,
    # a transaction) is checked again while it is loaded, and left out with one line in the log.
    Check(
        "aof-user",
        "The server loads its append-only file as the user `default`: what that may not run is gone"
        " after a restart.",
        _aof_user,
        essential=True,
    ),
    Check(
        "snapshot-status",
        "A snapshot fails for want of disk or memory, and the append-only file is next.",
        _snapshot_status,
    ),
    Check(
        "stop-writes-on-bgsave-error",
        "Otherwise a server that can no longer save goes on acknowledging.",
        _stop_writes,
    ),
    Check(
        "torn-tail",
        "After a power cut the server starts without its last acknowledged writes and says"
        " nothing.",
        _torn_tail,
    ),
)
