/* record.pml - what Redis keeps of an action, and the only ways to change it.
 *
 * Each inline here is one Lua script, and so one atomic step. A move compares state, fencing token,
 * owner and the journal's head; a note that came in between is read, and the move repeated.
 *
 * A worker's random owner token is its number here: it is inside one attempt at a time. Whether it
 * knows the head of the journal is one bit, which every line that another appends takes away.
 *
 * Switches: LOSE (Redis once loses its last acknowledged line), NO_HEAD (append without comparing
 * the head).
 */
typedef Record {
  mtype state;
  byte token;             /* fencing token: grows with every claim */
  byte owner;             /* the worker whose claim it is, and 1; 0: nobody's */
  byte intents;           /* how often a send was intended: the effect; later, in-band, its undo */
  mtype reply;            /* what was answered to the last of them */
}
Record rec[RECORDS];
byte lease[RECORDS];      /* the owner that the lease names, 0 once it has run out */
bit knows_head[RECORDS * WORKERS];
bit busy[WORKERS];        /* the worker lives, and is inside an attempt */
byte zombies, begun, ended;
#if PROTECTION == FENCED
byte highest;             /* the tokens of fenced types grow across all their actions */
#define NEXT_TOKEN(n) highest++; rec[n].token = highest
#else
#define NEXT_TOKEN(n) rec[n].token++
#endif

#define CLOSED(s) (s == COMMITTED || s == FAILED || s == ROLLED_BACK || s == STALE_CLOSED)
#define HALTED(s) (s == UNKNOWN || s == ROLLBACK_FAILED)
#define AT_REST(s) (CLOSED(s) || HALTED(s) || s == UNBORN)
#define REAPER (me == WORKERS - 1)
#ifdef ADOPTS
#define ME my_owner
#define BECOME(n) my_owner = n
#else
#define ME me + 1
#define BECOME(n) skip
#endif
#define MINE (rec[r].state == my_state && rec[r].token == my_token && rec[r].owner == ME)
#define LEASED (lease[r] == ME)
#define KNOWS_HEAD knows_head[r * WORKERS + me]

/* Any worker but the last may die after any step; what it sent goes on. */
#define MAY_DIE if :: !REAPER -> goto gone :: skip fi

#ifdef LOSE
Record was;
bit lost_once;
#define REMEMBER was.state = rec[0].state; was.token = rec[0].token; was.owner = rec[0].owner; \
  was.intents = rec[0].intents; was.reply = rec[0].reply
#define LOSS_IS_OVER lost_once

/* A failover, a power cut, a restored backup: the last acknowledged line is gone. */
active proctype Loss() {
  if
  :: d_step { was.state != 0 ->
       rec[0].state = was.state; rec[0].token = was.token; rec[0].owner = was.owner;
       rec[0].intents = was.intents; rec[0].reply = was.reply; was.state = 0; was.token = 0;
       was.owner = 0; was.intents = 0; was.reply = 0; lease[0] = 0; lost_once = 1;
#if PROTECTION == FENCED
       highest = rec[0].token
#endif
       }
  :: d_step { lost_once = 1 }
  fi
}
#else
#define REMEMBER skip
#define LOSS_IS_OVER true
#endif

/* The lease of the dead runs out; that of the living may, MAX_ZOMBIES times, at any moment:
 * a pause of process or host, a slow network, a jump of the clock. */
#define RUNS_OUT(n) \
  :: d_step { lease[n] && !busy[lease[n] - 1] -> lease[n] = 0 } \
  :: d_step { lease[n] && busy[lease[n] - 1] && zombies < MAX_ZOMBIES -> lease[n] = 0; zombies++ }

active proctype Clock() {
end:
  do
  RUNS_OUT(0)
#if RECORDS > 1
  RUNS_OUT(1)
#endif
  od
}

/* A line on top of the head that we know: nobody else knows the head any more. */
inline line() {
  PROMISE(journal_has_no_gap, KNOWS_HEAD);
  knows_head[r * WORKERS] = 0; knows_head[r * WORKERS + 1] = 0;
#if WORKERS > 2
  knows_head[r * WORKERS + 2] = 0;
#endif
  KNOWS_HEAD = 1
}

inline move(to) {
  if
  :: MINE ->
       REMEMBER;
#ifndef NO_HEAD
       KNOWS_HEAD = 1;
#endif
       PROMISE(who_waits_keeps_waiting, !HALTED(rec[r].state));
       line();
       rec[r].state = to; my_state = to
  :: else -> goto lost
  fi
}

inline move_and_drop(to) {
  atomic {
    move(to);
    rec[r].owner = 0;
    if :: LEASED -> lease[r] = 0 :: else fi
  }
}

/* The stored intent to send, and the last look at the lease in the same step. */
inline intend(to) {
  if :: LEASED -> skip :: else -> goto lost fi;
  move(to);
#ifdef COMPENSATE
  PROMISE(no_undo_behind_ones_back, r == 0 || rec[0].state == ROLLING_BACK);
#endif
#ifdef TOKEN_WITH_INTENT
  if :: sent -> NEXT_TOKEN(r); my_token = rec[r].token :: else fi;
#endif
  rec[r].intents++; rec[r].reply = NONE; sent = 1
}

inline claim(n) {
  r = n;
  REMEMBER;
  KNOWS_HEAD = 1; line();
  NEXT_TOKEN(r); rec[r].owner = me + 1;
  my_token = rec[r].token; my_state = rec[r].state;
  lease[r] = me + 1; busy[me] = 1; BECOME(me + 1)
}

/* A claim on top of our own, for the next fencing token: two sends under one token cannot be told
 * apart by the target. */
inline claim_again() {
  if :: LEASED -> skip :: else -> goto lost fi;
  move(my_state);
  NEXT_TOKEN(r); my_token = rec[r].token; sent = 0
}
