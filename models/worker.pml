/* worker.pml - one worker: claim, look, intend, send, note the answer, look again, settle.
 *
 * It follows tallystick/jobs/run.py step by step; the labels bear the names of its functions. The
 * including model gives the world: look(), look_back(), NUMBER, CONDITION, CLAIMABLE, ALL_AT_REST.
 *
 * WITHHOLD: once, the store does not confirm an intent, or it is too late to send; the worker says
 * that nothing was sent and lets the action go.
 *
 * Switches, each of them a mistake: NO_INTENT, LEASE_CHECK, NO_RAISE, NOT_ALWAYS, SAME_TOKEN,
 * TOKEN_WITH_INTENT, UNGUARDED, WITHHOLD_LATE (it says so after it has sent), ADOPTS (the reply to
 * its intent is lost; it asks again, finds the intent stored, and goes on under the claim that it
 * finds there too).
 */

/* One call. Its answer may be lost, or the call itself be on its way for long: that is one case,
 * since what is under way may also arrive in the same instant. */
inline call(kind, number) {
  learned = 1;
  if
  :: atomic {
       if
       :: ACCEPTS(kind, number) -> carry_out(kind, number); reply = OK
       :: else -> reply = REFUSAL
       fi }
  :: d_step { fly[kind * SLOTS + number]++; reply = UNCLEAR }
  :: reply = REFUSED                            /* a definite no, for reasons of its own */
#ifdef LIES
  :: reply = OK                                 /* a yes, and nothing done */
#endif
  fi;
  if :: reply == NOTHING -> goto lost :: else fi
}

/* Make the target refuse all older tokens. If it has seen a newer one, we are the zombie. */
inline raise_fence() {
  if :: my_token >= fence -> fence = my_token; forget_refused() :: else -> goto lost fi
}

inline last_look() {
  if :: LEASED -> skip :: else -> goto lost fi
}

/* Only one send under each token: before another one, the claim is renewed with the next. */
#if PROTECTION == FENCED && !defined(SAME_TOKEN)
#define CLOSING_TOKEN if :: sent -> atomic { claim_again(); MAY_DIE } :: else fi
#else
#define CLOSING_TOKEN skip
#endif
#ifdef TOKEN_WITH_INTENT
#define FRESH_TOKEN skip
#else
#define FRESH_TOKEN CLOSING_TOKEN
#endif

/* What was intended and not sent is as if it had not been intended. */
#if defined(WITHHOLD) || defined(WITHHOLD_LATE)
bit withheld;
#define BEFORE_THE_INTENT from = my_state; kept = rec[r].reply
#define PERHAPS_WITHHELD \
  if \
  :: true -> from = 0; kept = 0 \
  :: atomic { !withheld -> \
       withheld = 1; \
       move((from == APPROVED -> APPROVED : my_state)); \
       rec[r].intents--; rec[r].reply = kept; rec[r].owner = 0; \
       from = 0; kept = 0; \
       if :: LEASED -> lease[r] = 0 :: else fi }; \
     goto rest \
  fi
#else
#define BEFORE_THE_INTENT skip
#endif
#ifdef WITHHOLD
#define WITHHOLD_INTENT PERHAPS_WITHHELD
#else
#define WITHHOLD_INTENT skip
#endif

/* Locals are cleared as soon as they say nothing more: fewer states for the same behaviour. */
#ifdef UNDOES
#define CLEAR reply = 0; seen = 0; step = 0; saw = 0; saw_version = 0
#else
#define CLEAR reply = 0; seen = 0; step = 0
#endif
#define FORGET CLEAR; BECOME(0); busy[me] = 0; r = 0; my_token = 0; my_state = 0; sent = 0; heard = 0; \
  learned = 0

#define VERDICT (step == SETTLE -> COMMITTED : (step == NOT_APPLIED -> FAILED : UNKNOWN))

/* Those that may die are alike: they are numbered by their first claims. */
#define MY_TURN (REAPER || begun == me)

proctype Worker(byte me) {
  byte r, my_token;
  mtype my_state, reply, seen, step;
  bit sent, heard, learned, tried;
#if defined(WITHHOLD) || defined(WITHHOLD_LATE)
  mtype from, kept;
#endif
#ifdef ADOPTS
  byte my_owner;
#endif
#ifdef UNDOES
  mtype saw;
  byte saw_version;
#endif

rest:
  atomic {
    FORGET;
    if :: tried && !REAPER -> goto gone :: else fi
  };
  atomic {
    if
    :: CLAIMABLE(0) && MY_TURN -> claim(0)
#if RECORDS > 1
    :: CLAIMABLE(1) && MY_TURN -> claim(1)
#endif
    :: ALL_AT_REST && LOSS_IS_OVER -> goto gone
    fi;
    if :: !REAPER -> tried = 1; begun++ :: else fi;
    MAY_DIE;
    if
    :: my_state == APPROVED -> goto start
#ifdef UNDOES
    :: my_state == ROLLING_BACK -> goto undo
#endif
    :: else -> goto settle
    fi
  };

start:
  atomic {
    look();
    decide_before_the_intent();
    if :: step == ACT -> CLEAR; goto act :: else fi
  };
  move_and_drop((step == STALE -> STALE_CLOSED : (step == LOOK_AGAIN -> APPROVED : UNKNOWN)));
  goto rest;

act:
  FRESH_TOKEN;
#ifndef NO_INTENT
  atomic { BEFORE_THE_INTENT; intend(RUNNING); MAY_DIE };
  WITHHOLD_INTENT;
#endif
#ifdef ADOPTS
  atomic {
    if
    :: true
    :: rec[r].owner != 0 && rec[r].owner != ME ->
         my_owner = rec[r].owner; my_token = rec[r].token; my_state = rec[r].state
    fi
  };
#endif
#ifdef LEASE_CHECK
  last_look();
#endif
#if PROTECTION == FENCED
#ifdef NOT_ALWAYS
  if :: rec[r].intents == 1 -> goto send :: else fi;
#endif
#ifndef NO_RAISE
  atomic {
    if :: true -> raise_fence() :: goto settle fi;         /* not reached: nothing is sent */
    MAY_DIE
  };
#endif
  atomic {
    look();
    if :: seen != ABSENT -> CLEAR; goto settle :: else -> CLEAR fi
  };
  last_look();
send:
#endif
  atomic { call(r, NUMBER); MAY_DIE };
#ifdef WITHHOLD_LATE
  PERHAPS_WITHHELD;
#endif
#ifndef NO_INTENT
  atomic {
    move((reply == REFUSED -> RUNNING : VERIFYING));
    rec[r].reply = reply; reply = 0; heard = 1; learned = 0;
    MAY_DIE
  };
#endif

settle:
  atomic {
    look();
    learned = 1;
    reply = ((rec[r].reply == OK && !heard) -> UNCLEAR : rec[r].reply);
    decide_after_the_intent(ACTING);
    if
    :: step == RAISE_READ_CLOSE -> CLEAR; goto close_under_fence
#ifdef UNDOES
    :: step == UNDO && r == 0 -> goto begin_undo           /* what undoes is not undone in turn */
#endif
    :: step == RAISE_READ_ACT || step == RESEND_CONDITION || step == RESEND_KEY ->
         CLEAR; goto act
    :: else -> reply = 0; seen = 0
    fi
  };
#ifdef UNGUARDED
  atomic {
    PROMISE(who_waits_keeps_waiting, !HALTED(rec[r].state));
    KNOWS_HEAD = 1; line(); rec[r].state = VERDICT; rec[r].owner = 0; lease[r] = 0
  };
#else
  move_and_drop(VERDICT);
#endif
  goto rest;

close_under_fence:
  CLOSING_TOKEN;
  atomic {
    if :: true -> raise_fence(); look() :: seen = UNREADABLE fi;
    MAY_DIE
  };
  move_and_drop((seen == ABSENT -> FAILED : UNKNOWN));
  goto rest;

#ifdef UNDOES
#include "undo.pml"
#endif

lost:       /* the action is another's by now: say what we know, touch nothing else */
  if
  :: learned ->
testify:
       KNOWS_HEAD = 1;
       atomic {
#ifndef NO_HEAD
         if :: KNOWS_HEAD -> skip :: else -> goto testify fi;
#endif
         line()
       }
  :: else
  fi;
  goto rest;

gone:
  atomic { FORGET; tried = 0; ended++ }
}
