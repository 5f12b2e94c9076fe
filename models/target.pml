/* target.pml - the world that is acted upon, and the network before it.
 *
 * A message is a kind (0 the effect, 1 what undoes it) and a number (fencing token, or the version
 * that is its condition). It may be delayed for ever, overtaken, or lost, whatever becomes of its
 * sender; it is not multiplied.
 */
#if GUARANTEE == FENCED
#define SLOTS 10
#elif GUARANTEE == VERSIONED
#define SLOTS 5
#else
#define SLOTS 1
#endif
byte fly[KINDS * SLOTS];  /* messages on their way */
byte done[KINDS];         /* what was carried out: the target's own ledger */
byte version, fence;

#define effects done[0]
#define restores done[1]

#if GUARANTEE == KEYED
#define ACCEPTS(kind, number) (done[kind] == 0)
#define REFUSAL OK        /* the answer of the first time */
#elif GUARANTEE == VERSIONED
#define ACCEPTS(kind, number) (number == version)
#define REFUSAL REFUSED
#elif GUARANTEE == FENCED
#define ACCEPTS(kind, number) (number >= fence)
#define REFUSAL NOTHING   /* "your token is old": the sender stops */
#else
#define ACCEPTS(kind, number) true
#define REFUSAL REFUSED
#endif

inline carry_out(kind, number) {
#if GUARANTEE == FENCED
  fence = number;
#endif
  done[kind]++;
  version++;
  land(kind)
}

/* A message that the fence will refuse whenever it comes is as good as lost. */
inline forget_refused() {
  byte old = 0;
  do
  :: old < fence -> fly[old] = 0; fly[(KINDS - 1) * SLOTS + old] = 0; old++
  :: else -> old = 0; break
  od
}

inline arrive(kind, number) {
  if :: ACCEPTS(kind, number) -> carry_out(kind, number) :: else fi
}

#define ARRIVES(kind, n) \
  :: atomic { fly[kind * SLOTS + n] > 0 -> fly[kind * SLOTS + n]--; arrive(kind, n) } \
  :: atomic { fly[kind * SLOTS + n] > 0 -> fly[kind * SLOTS + n]-- }
#if SLOTS == 10
#define ALL_OF(kind) ARRIVES(kind, 0) ARRIVES(kind, 1) ARRIVES(kind, 2) ARRIVES(kind, 3) \
  ARRIVES(kind, 4) ARRIVES(kind, 5) ARRIVES(kind, 6) ARRIVES(kind, 7) ARRIVES(kind, 8) \
  ARRIVES(kind, 9)
#elif SLOTS == 5
#define ALL_OF(kind) ARRIVES(kind, 0) ARRIVES(kind, 1) ARRIVES(kind, 2) ARRIVES(kind, 3) \
  ARRIVES(kind, 4)
#else
#define ALL_OF(kind) ARRIVES(kind, 0)
#endif

/* Everything has arrived, or is lost for good. */
inline wait_for_silence() {
  byte slot = 0;
  ended == WORKERS;
  do
  :: slot < KINDS * SLOTS -> fly[slot] == 0; slot++
  :: else -> slot = 0; break
  od
}
