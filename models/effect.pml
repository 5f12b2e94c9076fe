/* effect.pml - one approved action has at most one effect, whatever dies, freezes or comes late.
 *
 * Switches beside those of the files below: STALE_READS (a reading may be older than it should),
 * LEAVE_IT (nobody looks for what was begun and not finished), FAILED_IS_A_GUESS (leaves out that
 * promise), REACHED=state (is that state ever reached at the end?).
 */
#define RECORDS 1
#define KINDS 1
#include "words.pml"
#define left true         /* workers that die before any intent are counted, not modelled */
#define go true           /* an approval that ends under way forbids another try, as the last does */
#define again (rec[r].intents < MAX_SENDS)
#define only (rec[r].intents == 1)

#ifdef LEAVE_IT
#define CLAIMABLE(n) (rec[n].state == APPROVED && lease[n] == 0)
#else
#define CLAIMABLE(n) (!AT_REST(rec[n].state) && lease[n] == 0)
#endif
#define ALL_AT_REST AT_REST(rec[0].state)

#include "record.pml"
#include "target.pml"
#include "rules.pml"

#if GUARANTEE == FENCED
#define NUMBER my_token
#else
#define NUMBER 0          /* version 0 is the one that was approved */
#endif

inline land(kind) {
  PROMISE(at_most_one_effect, effects <= 1)
}

/* One reading and what it means. It may fail; it is never older than the reader's last step. */
inline look() {
  atomic {
    if
#if PROTECTION == BLIND
    :: rec[r].reply == OK -> seen = OURS
    :: rec[r].reply != OK -> seen = UNREADABLE
#else
    :: effects > 0 -> seen = OURS
    :: effects == 0 -> seen = ABSENT
    :: my_state != APPROVED -> seen = UNREADABLE
#ifdef STALE_READS
    :: seen = ABSENT
#endif
#endif
    fi
  }
}
#if PROTECTION != BLIND
#define LIES              /* of a blind target, a yes is all there is to judge */
#endif
#include "worker.pml"

active proctype Net() {
end:
  do
  ALL_OF(0)
  od
}

init {
  byte n;
  atomic {
    rec[0].state = APPROVED; rec[0].reply = NONE;
    for (n : 0 .. WORKERS - 1) { run Worker(n) }
    n = 0
  };
  wait_for_silence();
  PROMISE(nothing_left_behind, AT_REST(rec[0].state));
  PROMISE(committed_is_there, rec[0].state != COMMITTED || effects == 1);
#ifndef FAILED_IS_A_GUESS
  PROMISE(failed_is_not_there, rec[0].state != FAILED || effects == 0);
#endif
#ifdef REACHED
  PROMISE(never_reached, rec[0].state != REACHED)
#endif
}
