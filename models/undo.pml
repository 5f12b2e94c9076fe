/* undo.pml - the part of a worker that undoes (tallystick/jobs/undo.py); included by worker.pml.
 *
 * In-band, the same record is sent a second kind of message under a stored intent of its own. With
 * COMPENSATE a second record is born, approved with the first, and walks like any other.
 */
begin_undo:
  atomic {
    move(ROLLING_BACK);
    rec[r].intents = 0; rec[r].reply = NONE;
    wrong = saw; wrong_version = saw_version;
    CLEAR; learned = 0;
    MAY_DIE
  };

undo:
#ifdef COMPENSATE
  if
  :: NO_COMPENSATION ->
       atomic {
         look_back();
         if
         :: seen == OURS -> move_and_drop(ROLLED_BACK); goto rest
         :: seen == ABSENT || protection == BLIND -> CLEAR
         :: else -> move_and_drop(ROLLBACK_FAILED); goto rest
         fi
       };
       if                                              /* what it is approved to act on */
       :: atomic { saw = (protection == BLIND -> 0 : value); saw_version = version }
       :: protection != BLIND -> move_and_drop(ROLLBACK_FAILED); goto rest
       fi;
       atomic {
#ifndef UNGUARDED_BIRTH  /* it is born in one script, and only by the holder of its parent */
         if :: MINE -> skip :: else -> goto lost fi;
#endif
         if
         :: NO_COMPENSATION ->
              rec[1].state = APPROVED; rec[1].reply = NONE; rec[1].intents = 0;
              born = saw; born_version = saw_version
         :: else -> skip                               /* its key has an owner already */
         fi;
         CLEAR;
         MAY_DIE
       };
       move_and_drop(ROLLING_BACK)
  :: rec[1].state == COMMITTED ->
       look_back();
       move_and_drop((seen == OURS -> ROLLED_BACK : ROLLBACK_FAILED))
  :: else -> move_and_drop((AT_REST(rec[1].state) -> ROLLBACK_FAILED : ROLLING_BACK))
  fi;
  goto rest;
#else
  atomic {
    look_back();
    reply = rec[r].reply;
    decide_after_the_intent(UNDOING);
    if
    :: rec[r].intents == 0 && (seen == ABSENT || protection == BLIND) -> CLEAR; goto send_undo
#ifdef BLIND_RESTORE
    :: step != SETTLE || reply == NONE -> CLEAR; goto send_undo
#endif
    :: rec[r].intents > 0 && (step == RAISE_READ_ACT || step == RESEND_CONDITION
       || step == RESEND_KEY) ->
         CLEAR; goto send_undo
    :: else -> reply = 0; seen = 0
    fi
  };
  move_and_drop((step == SETTLE -> ROLLED_BACK : ROLLBACK_FAILED));
  goto rest;

send_undo:
  FRESH_TOKEN;
  atomic { BEFORE_THE_INTENT; intend(ROLLING_BACK); MAY_DIE };
  WITHHOLD_INTENT;
#if PROTECTION == FENCED
  atomic {
    if :: true -> raise_fence() :: move_and_drop(ROLLBACK_FAILED); goto rest fi;
    MAY_DIE
  };
  atomic {
    look_back();
    if :: seen != ABSENT -> CLEAR; goto undo :: else -> CLEAR fi
  };
  last_look();
#endif
  atomic { call(1, CONDITION); MAY_DIE };
  atomic { move(ROLLING_BACK); rec[r].reply = reply; reply = 0; learned = 0; MAY_DIE };
  goto undo;
#endif
