/*
 * Precedence: a client above others closes their gates and wakes them when it is gone, as in shm/client/above.c,
 * tick.c and turn.c. There is one client of a high level (by its work, or by a lease alone) and LOWS below it. One
 * Promela statement is one access to shared memory. That a record is published by one CAS is shown by handover.pml.
 *
 * -DLOWS=1|2    clients of the low level
 * -DROUNDS=r    times that each has work
 * -DMUT_...     a deliberate mistake, see models.sh
 */
#ifndef LOWS
#define LOWS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

#define HIGH   LOWS /* its bit */
#define BIT(i) (1 << (i))

/* The head's record and its sequence number. */
byte running, waiting, version;
bool leased;       /* the high one's bit of adm_leased */
bool gate[LOWS];   /* the word that a launch tests */
byte wake[LOWS];   /* futex words */

/* For the assertions: whether the high client has closed all gates that it has to, and whether a low client has
 * looked at itself. */
bool closed, looked[LOWS];

#define ABOVE_IN(r) ((r & BIT(HIGH)) != 0)
#define HELD        (leased || ABOVE_IN(running))

/* Asserted: while a client is above and has said so, the gate of no low client that has entered and looked is open.
 */
#define STOPPED(i) (!(closed && HELD && (running & BIT(i)) && looked[i]) || !gate[i])
#if LOWS > 1
#define ALL_STOPPED (STOPPED(0) && STOPPED(1))
#else
#define ALL_STOPPED STOPPED(0)
#endif

/* arb_above_close: after the CAS, or after the lease was shown. */
inline close_below()
{
	r = running;
	i = 0;
	do
	:: i < LOWS ->
	   if
	   :: (r & BIT(i)) -> gate[i] = false
	   :: else -> skip
	   fi;
	   i++
	:: else -> break
	od;
	closed = true
}

/* arb_above_release: wakes the clients that wait, by the record that is there now. */
inline release_below()
{
	r = waiting;
	i = 0;
	do
	:: i < LOWS ->
	   if
	   :: (r & BIT(i)) -> wake[i]++
	   :: else -> skip
	   fi;
	   i++
	:: else -> break
	od
}

active proctype high()
{
	byte r, i, n;

	do
	:: n < ROUNDS ->
	   n++;
	   if
	   :: true ->
	      /* enter: top rises with the CAS */
#ifdef MUT_CLOSE_FIRST
	      close_below();
#endif
	      atomic { running = running | BIT(HIGH); version++ };
#ifndef MUT_CLOSE_FIRST
	      close_below();
#endif
	      /* leave: top falls */
	      atomic { closed = false;
#ifdef MUT_RELEASE_FIRST
	      };
	      release_below();
	      atomic {
#endif
	      running = running & ~BIT(HIGH); version++ };
#ifndef MUT_RELEASE_FIRST
	      release_below()
#endif
	   :: true ->
	      /* a lease: its bit and adm_leased_ns, then the look at the set */
#ifdef MUT_LEASE_LATE
	      close_below();
	      leased = true;
#else
	      leased = true;
	      close_below();
#endif
	      atomic { closed = false; leased = false };
	      release_below()
	   fi
	:: else -> break
	od
}

/* Both looks of a client at itself: arb_above_me, by a record and by the leases. */
inline look_above()
{
	r = running;
	above = ABOVE_IN(r);
	if
	:: !above -> above = leased
	:: else -> skip
	fi
}

/* arb_above_entered: the word first, then the look. */
inline entered()
{
	gate[me] = true;
#ifndef MUT_NO_LOOK
	look_above();
	if
	:: above -> gate[me] = false
	:: else -> skip
	fi;
#endif
	looked[me] = true
}

proctype low(byte me)
{
	byte r, v, seen, n, ticks;
	bool above;

	do
	:: n < ROUNDS ->
	   /* gpuarb_client_wait: WAKE, the word first, then the decision */
again:
#ifndef MUT_WORD_LATE
	   seen = wake[me];
#endif
	   atomic { v = version; r = running };
	   above = ABOVE_IN(r);
	   if
	   :: !above -> above = leased
	   :: else -> skip
	   fi;
	   if
	   :: above ->
	      /* registered by a CAS, or the record is as it was */
	      if
	      :: atomic { version == v -> if
	         :: !(waiting & BIT(me)) -> waiting = waiting | BIT(me); version++
	         :: else -> skip
	         fi };
#ifndef MUT_LEASE_UNSEEN
	         /* a lease is in no record: it may have ended between the look and the registration */
	         look_above();
	         if
	         :: !above -> goto again
	         :: else -> skip
	         fi;
#endif
#ifdef MUT_WORD_LATE
	         seen = wake[me];
#endif
	         wake[me] != seen /* asleep */
	      :: version != v -> skip
	      fi;
	      goto again
	   :: else ->
	      if
	      :: atomic { version == v -> running = running | BIT(me); waiting = waiting & ~BIT(me); version++ }
	      :: version != v -> goto again
	      fi
	   fi;
	   entered();
	   /* It runs: a launch tests the gate; ticks find out why it is closed, or open it again. */
	   ticks = 0;
	   do
	   :: gate[me] && ticks < 2 ->
	      ticks++;
	      look_above();
	      if
	      :: above -> gate[me] = false
	      :: else ->
	         looked[me] = false;
	         gate[me] = true;
#ifdef MUT_TICK_BLIND
	         looked[me] = true
#else
	         entered()
#endif
	      fi
	   :: true -> break
	   od;
	   /* leave: no launch may pass once the place is gone */
	   gate[me] = false;
	   atomic { looked[me] = false; running = running & ~BIT(me); version++ };
	   n++
	:: else -> break
	od
}

active proctype monitor()
{
end:
	do
	:: atomic { !ALL_STOPPED -> assert(false) }
	od
}

init
{
	atomic {
		run low(0);
#if LOWS > 1
		run low(1)
#endif
	}
}
