/* rules.pml - the decision table, row by row as in tallystick/jobs/decision.py; the first that fits
 * decides. tests/models/test_rules.py holds every situation of these rows to that function.
 *
 * Each row reads RULE(number, when, then). `when` may use: protection, stage, seen, reply, again
 * (another try is allowed), only (nobody sent before), left (workers may still die over it), go.
 */
#define RULE(number, when, then) if :: step == NOTHING && (when) -> step = then :: else fi

inline decide_before_the_intent() {
  d_step {
    step = NOTHING;
    RULE(7, !go, CLOSE_UNSTARTED);
    RULE(8, seen == OURS, HALT);
    RULE(9, seen == FOREIGN || seen == PARTIAL, STALE);
    RULE(10, !left, HALT);
    RULE(11, seen == UNREADABLE && protection != BLIND, LOOK_AGAIN);
    RULE(12, true, ACT);
  }
}

inline decide_after_the_intent(stage) {
  d_step {
    step = NOTHING;
#ifdef RUN_AGAIN          /* tempting: whatever is found unfinished is done again */
    RULE(0, reply == NONE, RESEND_KEY);
#endif
#ifdef ABSENT_RUN_AGAIN   /* tempting: it is not there, so it will not come */
    RULE(0, seen == ABSENT && reply == NONE, RESEND_KEY);
#endif
#ifdef FOREIGN_IS_OURS    /* tempting: only we write there, so a strange value is our work */
    RULE(0, seen == FOREIGN && stage == ACTING, UNDO);
#endif
#ifdef TRUST_REPLY        /* tempting: the call returned, so it is done */
    RULE(0, reply == OK && seen != FOREIGN, SETTLE);
#endif
    RULE(13, seen == OURS, SETTLE);
    RULE(14, reply == REFUSED && only && seen != PARTIAL, NOT_APPLIED);
    RULE(15, (seen == PARTIAL || seen == FOREIGN) && stage == ACTING && reply == OK, UNDO);
    RULE(15, seen == PARTIAL || seen == FOREIGN, HALT);
    RULE(16, protection == FENCED && seen == ABSENT && again, RAISE_READ_ACT);
    RULE(16, protection == FENCED && seen == ABSENT, RAISE_READ_CLOSE);
    RULE(17, protection == VERSIONED && seen == ABSENT && again, RESEND_CONDITION);
    RULE(18, protection == KEYED && again, RESEND_KEY);
    RULE(20, true, HALT);
  }
}
