/* rollback.pml - the effect lands wrong, and is undone: in-band, or by a compensating action.
 *
 * Switches: COMPENSATE (else in-band); OTHERS (somebody else writes there once, at any moment);
 * LOST_UPDATE (promise also that an undo never overwrites what they wrote); PRODUCED (the answer
 * tells which version the effect produced). Mistakes: FOREIGN_IS_OURS, BLIND_RESTORE,
 * APPROVED_VERSION, COMPENSATE_AGAIN, UNGUARDED_BIRTH.
 */
#define UNDOES
#define KINDS 2
#ifdef COMPENSATE
#define RECORDS 2
#else
#define RECORDS 1
#endif
#include "words.pml"
#define left true
#define go true
#define again (rec[r].intents < MAX_SENDS)
#define only (rec[r].intents == 1)

mtype = { OLD, WRONG, OTHER };
mtype value = OLD;        /* what the target shows; `version` counts its changes */
mtype wrong, born;        /* as stored: what was judged wrong, what the compensation was born over */
byte wrong_version, born_version, produced;

#include "record.pml"
#include "target.pml"
#include "rules.pml"

#ifdef COMPENSATE_AGAIN
#define NO_COMPENSATION (rec[1].state == UNBORN || rec[1].state == UNKNOWN)
#else
#define NO_COMPENSATION (rec[1].state == UNBORN)
#endif

#ifdef COMPENSATE
#define CLAIMABLE(n) (!AT_REST(rec[n].state) && lease[n] == 0 && (n == 1 || AT_REST(rec[1].state)))
#define ALL_AT_REST (AT_REST(rec[0].state) && AT_REST(rec[1].state))
#else
#define CLAIMABLE(n) (!AT_REST(rec[n].state) && lease[n] == 0)
#define ALL_AT_REST AT_REST(rec[0].state)
#endif

#if GUARANTEE == FENCED
#define NUMBER my_token
#define CONDITION my_token
#elif GUARANTEE == VERSIONED
#define NUMBER (r == 0 -> 0 : born_version)
#ifdef APPROVED_VERSION
#define CONDITION 0
#elif defined(PRODUCED)
#define CONDITION produced
#else
#define CONDITION wrong_version
#endif
#else
#define NUMBER 0
#define CONDITION 0
#endif

#define SAME_VERSION(v) (protection != VERSIONED || version == v)

inline land(kind) {
  if
  :: kind == 0 -> value = WRONG; produced = version
  :: else ->
#ifdef LOST_UPDATE
       PROMISE(no_lost_update, value != OTHER);
#endif
       value = OLD
  fi;
  PROMISE(at_most_one_effect, effects <= 1);
  PROMISE(undone_only_what_was_done, restores <= effects)
}

#define OR_NOT_READABLE :: my_state != APPROVED -> seen = UNREADABLE

inline look() {
  atomic {
    if
#if PROTECTION == BLIND
    :: rec[r].reply == OK -> seen = (r == 0 -> FOREIGN : OURS)
    :: rec[r].reply != OK -> seen = UNREADABLE
#else
    :: r == 0 ->
         saw = value; saw_version = version;
         seen = ((value == OLD && SAME_VERSION(0)) -> ABSENT : FOREIGN)
    :: r == 1 ->
         seen = ((value == born && SAME_VERSION(born_version)) -> ABSENT :
                 (value == OLD -> OURS : FOREIGN))
    OR_NOT_READABLE
#endif
    fi
  }
}

/* The look of an undo: is the world as before, or still as it was judged? */
inline look_back() {
  atomic {
    if
#if PROTECTION == BLIND
    :: seen = UNREADABLE
#else
    :: seen = (value == OLD -> OURS :
               ((value == wrong && SAME_VERSION(wrong_version)) -> ABSENT : FOREIGN))
    OR_NOT_READABLE
#endif
    fi
  }
}
#if PROTECTION != BLIND && !defined(OTHERS)
#define LIES
#endif
#include "worker.pml"

active proctype Net() {
end:
  do
  ALL_OF(0)
  ALL_OF(1)
  od
}

#ifdef OTHERS
active proctype Others() {
  if :: d_step { value = OTHER; version++ } :: skip fi
}
#endif

init {
  byte n;
  atomic {
    rec[0].state = APPROVED; rec[0].reply = NONE;
#ifdef COMPENSATE
    rec[1].state = UNBORN;
#endif
    for (n : 0 .. WORKERS - 1) { run Worker(n) }
    n = 0
  };
  wait_for_silence();
  PROMISE(nothing_left_behind, ALL_AT_REST);
  PROMISE(failed_is_not_there, rec[0].state != FAILED || effects == 0);
  PROMISE(rolled_back_is_as_before, rec[0].state != ROLLED_BACK || value != WRONG);
#ifdef COMPENSATE
  PROMISE(committed_is_there, rec[1].state != COMMITTED || restores == 1);
#endif
#ifdef REACHED
  PROMISE(never_reached, rec[0].state != REACHED)
#endif
}
