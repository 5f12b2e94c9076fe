/* words.pml - the words of the protocol, as the code has them, and the bounds. */
#define KEYED 1
#define VERSIONED 2
#define FENCED 3
#define READABLE 4
#define BLIND 5
#define PLAIN 6
#define protection PROTECTION

/* What the target really does; a lie about it is a variant of its own. */
#ifndef GUARANTEE
#if PROTECTION == READABLE || PROTECTION == BLIND
#define GUARANTEE PLAIN
#else
#define GUARANTEE PROTECTION
#endif
#endif

#ifndef WORKERS
#define WORKERS 3         /* the last of them never dies, so that "nothing is left" can be asked */
#endif
#ifndef MAX_ZOMBIES
#define MAX_ZOMBIES 2
#endif
#ifndef MAX_SENDS
#define MAX_SENDS 2       /* max_attempts of the action type */
#endif

/* states */
mtype = { UNBORN, APPROVED, RUNNING, VERIFYING, COMMITTED, FAILED, STALE_CLOSED, UNKNOWN,
          ROLLING_BACK, ROLLED_BACK, ROLLBACK_FAILED };
/* stages, replies, readings (UNREADABLE is Seen.UNKNOWN in the code) */
mtype = { ACTING, UNDOING };
mtype = { NONE, OK, REFUSED, UNCLEAR };
mtype = { OURS, ABSENT, PARTIAL, FOREIGN, UNREADABLE };
/* steps */
mtype = { NOTHING, CLOSE_UNSTARTED, STALE, LOOK_AGAIN, ACT, SETTLE, NOT_APPLIED, UNDO, HALT,
          RAISE_READ_ACT, RAISE_READ_CLOSE, RESEND_CONDITION, RESEND_KEY };

/* The promises. A broken one is reported by its name, which is a variable that is never set. */
#define PROMISE(name, holds) assert((holds) || name)
hidden byte at_most_one_effect, committed_is_there, failed_is_not_there, nothing_left_behind,
  who_waits_keeps_waiting, journal_has_no_gap, undone_only_what_was_done, rolled_back_is_as_before,
  no_undo_behind_ones_back, no_lost_update, never_reached;
