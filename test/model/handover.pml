/*
 * The snapshot's publication and the hand-over of the lease (policy `exclusive`), as in shm/segment/running.c,
 * shm/client/turn.c and shm/client/reclaim.c. One Promela statement is one access to shared memory or one system call.
 *
 * -DN=2|3          clients, each with a slot of its own
 * -DROUNDS=r       times that a client asks for the lease; 0: for ever
 * -DCRASHES=k      kills, at any step of any client, which may come back as a new owner of its slot
 * -DGIVEUPS=k      times that a client waits too long and leaves the queue
 * -DTIMEOUTS       bounded sleeps end by themselves as soon as a client has been killed;
 *                  without it a lost wake-up is a deadlock
 * -DANYCHOICE      any waiter may be chosen; without it, the one that has waited longest is
 * -DMUT_...        a deliberate mistake, see models.sh
 *
 * Two abstractions keep it finite and lose nothing: the head's sequence number and the futex word never repeat in
 * practice, so each is a bit per process, "it has not changed since I read it".
 */
#ifndef N
#define N 2
#endif
#ifndef ROUNDS
#define ROUNDS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef GIVEUPS
#define GIVEUPS 0
#endif

#define NONE   255
#define BIT(i) (1 << (i))

/* A record, reduced to what decides about the lease. The shape says which of the rarely needed fields are there; the
 * others are neither written nor read. */
#define RESERVED 1
#define WAITING  2
typedef record {
	byte shape;
	byte running;
	byte reserved; /* slot + 1 */
	byte waiting
};

record buf[2 * N]; /* slot i owns 2i and 2i + 1 */
byte head;         /* {slot, buffer}; the sequence number is the bit below */
bool fresh[N];     /* the head that process i has read is still the head */

/* The buffer, + 1, that process i is reading or writing now. A buffer that is not the head and that no process reads
 * or writes is overwritten before it is read again: tidy() forgets it, which saves states. */
byte reads[N], writes[N];
#define IN_HANDS(b, i) (reads[i] == b + 1 || writes[i] == b + 1)
#if N > 2
#define IN_USE(b) (head == b || IN_HANDS(b, 0) || IN_HANDS(b, 1) || IN_HANDS(b, 2))
#else
#define IN_USE(b) (head == b || IN_HANDS(b, 0) || IN_HANDS(b, 1))
#endif
inline tidy(k)
{
	for (k : 0 .. 2 * N - 1) {
		if
		:: !IN_USE(k) -> buf[k].shape = 0; buf[k].running = 0; buf[k].reserved = 0; buf[k].waiting = 0
		:: else -> skip
		fi
	}
	k = 0
}

/* The record that was published last, which is what the head's buffer must hold. Only assertions and formulas look at
 * it. */
record truth;
bool believes[N]; /* its CAS took the lease and none has given it back */

/* Time: has the reservation in the head lapsed, and does process i's clock reading know it? */
bool late;
bool knows[N];

/* The kernel: which process holds byte i; which sleeps on word i; whether the word has changed since its owner loaded
 * it. */
byte byte_of[N] = NONE;
bool asleep[N];
bool changed[N];

bool clean[N];   /* the slot's state is ARB_SLOT_FREE */
byte since[N];   /* wait_since_ns, as a place in the order; 0: does not wait */
bool killed[N];
byte crashes = CRASHES;
byte giveups = GIVEUPS;

#define ALIVE(i)   (byte_of[i] == i && !killed[i])
#if N > 2
#define ANY_ALIVE  (ALIVE(0) || ALIVE(1) || ALIVE(2))
#else
#define ANY_ALIVE  (ALIVE(0) || ALIVE(1))
#endif
#define RUNS(i)    ((truth.running & BIT(i)) != 0)
#define WAITS(i)   ((truth.waiting & BIT(i)) != 0 && ALIVE(i))

#ifdef TIMEOUTS
#define MAY_TIME_OUT (crashes < CRASHES)
#else
#define MAY_TIME_OUT false
#endif

/* A reservation holds long enough for a live client that was woken; it lapses while another one runs, or
 * if its client is dead. */
#define MAY_LAPSE (truth.reserved && !late && (truth.running || !ALIVE(truth.reserved - 1)))

inline check_lease()
{
	assert((truth.running & (truth.running - 1)) == 0);
	for (j : 0 .. N - 1) {
		assert(!believes[j] || RUNS(j));
	}
	j = 0
}

/* load(): head, then field by field, in the order of copy_in(). What was read may be torn. */
inline load()
{
	do
	:: d_step { h = head; fresh[me] = true; reads[me] = h + 1 };
	   s.shape = buf[h].shape;
	   s.running = buf[h].running;
	   s.reserved = (s.shape & RESERVED -> buf[h].reserved : 0);
	   atomic { s.waiting = (s.shape & WAITING -> buf[h].waiting : 0); s.shape = 0; reads[me] = 0; tidy(j) };
	   if
	   :: (s.running & s.waiting) == 0 -> break
	   :: else -> assert(!fresh[me]) /* -EBADMSG */
	   fi
	od
}

/* unchanged(): a refusal counts only if the head is still the same. */
inline unchanged()
{
	d_step {
		ok = fresh[me];
		assert(!ok || (s.reserved == truth.reserved && s.running == truth.running && s.waiting == truth.waiting));
		fresh[me] = false
	}
}

/* Keeps what load() read, to compare it when the CAS succeeds: no process may act on a torn record. */
#define KEEP old.reserved = s.reserved; old.running = s.running; old.waiting = s.waiting

inline forget()
{
	d_step {
		s.reserved = 0; s.running = 0; s.waiting = 0;
		old.reserved = 0; old.running = 0; old.waiting = 0;
		h = 0; w = 0; ok = false; chosen = false; fresh[me] = false; knows[me] = false
	}
}

/* choose(): a place has become free. If a client waits, the place is reserved for one, or again for the client that
 * has a reservation: it may have looked while the lease was taken, and may sleep again. */
inline choose()
{
	next = NONE;
	chosen = false;
	if
	:: s.waiting == 0 -> skip
	:: s.waiting != 0 ->
		if
#ifdef MUT_KEEP_RESERVATION
		:: s.reserved != 0 && !knows[me] -> skip
#else
		:: s.reserved != 0 && !knows[me] -> next = s.reserved - 1; chosen = true
#endif
		:: s.reserved == 0 || knows[me] ->
			first_waiter(s.waiting);
			s.reserved = next + 1;
			chosen = true
		fi
	fi
}

/* arb_wait_choose() */
inline first_waiter(set)
{
	next = NONE;
#ifdef ANYCHOICE
	if
	:: set & BIT(0) -> next = 0
	:: set & BIT(1) -> next = 1
#if N > 2
	:: set & BIT(2) -> next = 2
#endif
	:: set == 0 -> skip
	fi
#else
	for (j : 0 .. N - 1) {
		if
		:: (set & BIT(j)) && (next == NONE || since[j] < since[next]) -> next = j
		:: else -> skip
		fi
	}
	j = 0
#endif
}

/* publish(), as slot `act`: into its buffer that is not the head, then the CAS. */
inline publish()
{
#ifdef MUT_HEAD_BUFFER
	w = (h / 2 == act -> h : 2 * act);
#else
	w = (h == 2 * act -> 2 * act + 1 : 2 * act);
#endif
	writes[me] = w + 1;
	if
	:: s.reserved || s.waiting -> buf[w].reserved = s.reserved; buf[w].waiting = s.waiting
	:: else -> skip
	fi;
	buf[w].shape = (s.reserved -> RESERVED : 0) | (s.waiting -> WAITING : 0);
	buf[w].running = s.running;
#ifdef MUT_WAKE_FIRST
	wake_next();
#endif
	atomic {
		ok = fresh[me];
		writes[me] = 0;
		if
		:: ok ->
			assert(old.reserved == truth.reserved && old.running == truth.running && old.waiting == truth.waiting);
			head = w;
			for (j : 0 .. N - 1) {
				fresh[j] = false;
				/* A clock that was read before this moment is earlier than the end of the new
				 * reservation. */
				knows[j] = knows[j] && !chosen
			}
			late = late && !chosen && s.reserved;
			believes[act] = (s.running & BIT(act)) != 0;
			truth.reserved = s.reserved; truth.running = s.running; truth.waiting = s.waiting;
			check_lease()
		:: else -> skip
		fi;
		fresh[me] = false;
		tidy(j)
	}
}

/* arb_os_wake(): increment, then FUTEX_WAKE. */
inline wake_next()
{
	if
	:: next != NONE ->
		changed[next] = true;
		d_step { asleep[next] = false; next = NONE }
	:: else -> skip
	fi
}

/* Wakes after a transition: where the C code does it. */
inline wake_after()
{
#ifdef MUT_WAKE_FIRST
	next = NONE
#else
	wake_next()
#endif
}

inline drop_reservation_of(i)
{
	s.reserved = (s.reserved == i + 1 -> 0 : s.reserved)
}

/* enter() of the client with queue set: prepare_to_wait(), arb_running_enter(), wake_next(). */
inline enter()
{
	atomic {
		if
		:: since[me] == 0 ->
			since[me] = 1;
			for (j : 0 .. N - 1) {
				if
				:: j != me && since[j] >= since[me] -> since[me] = since[j] + 1
				:: else -> skip
				fi
			}
			j = 0
		:: else -> skip
		fi;
		act = me;
		next = NONE;
		knows[me] = late && truth.reserved /* new_move() reads the clock */
	}
	do
	:: load();
	   if
	   :: s.running & BIT(me) -> break
	   :: s.running == 0 && (s.reserved == 0 || s.reserved == me + 1 || knows[me]) ->
		atomic {
			KEEP;
			s.running = s.running | BIT(me);
			s.waiting = s.waiting & ~BIT(me);
			drop_reservation_of(me);
			next = NONE;
			chosen = false;
#ifdef MUT_KEEP_RESERVATION
			choose() /* as if there were room for another */
#endif
		}
		publish();
		if
		:: ok -> break
		:: else -> skip
		fi
	   :: else ->
		if
		:: s.waiting & BIT(me) ->
			unchanged();
			if
			:: ok -> break
			:: else -> skip
			fi
		:: else ->
			d_step { KEEP; s.waiting = s.waiting | BIT(me); next = NONE; chosen = false }
			publish();
			if
			:: ok -> break
			:: else -> skip
			fi
		fi
	   fi
	od;
	atomic { got = (s.running & BIT(me)) != 0; ok = false }
	wake_after();
	forget()
}

inline begin_move(slot)
{
	d_step { act = slot; next = NONE; knows[me] = late && truth.reserved }
}

/* arb_running_leave() */
inline leave()
{
	begin_move(me);
	do
	:: load();
	   assert(s.running & BIT(me));
	   atomic {
		KEEP;
		s.running = s.running & ~BIT(me);
		choose()
	   }
	   publish();
	   if
	   :: ok -> break
	   :: else -> skip
	   fi
	od;
	wake_after();
	forget()
}

/* give_up(): arb_running_unqueue() */
inline give_up()
{
	begin_move(me);
	do
	:: load();
	   if
	   :: (s.waiting & BIT(me)) == 0 -> break
	   :: else -> skip
	   fi;
	   atomic {
		KEEP;
		s.waiting = s.waiting & ~BIT(me);
		drop_reservation_of(me);
#ifdef MUT_GIVE_UP_SILENTLY
		next = NONE;
		chosen = false
#else
		choose()
#endif
	   }
	   publish();
	   if
	   :: ok -> break
	   :: else -> skip
	   fi
	od;
	wake_after();
	stop_waiting(me);
	forget()
}

inline stop_waiting(slot)
{
	atomic {
		for (j : 0 .. N - 1) {
			since[j] = (since[slot] && since[j] > since[slot] -> since[j] - 1 : since[j])
		}
		since[slot] = 0;
		j = 0
	}
}

/* arb_reclaim_clean(), by the holder of the slot's byte: arb_running_drop() through the slot's own buffers. */
inline reclaim_clean(slot)
{
	clean[slot] = false;
	begin_move(slot);
	do
	:: load();
	   if
	   :: ((s.running | s.waiting) & BIT(act)) == 0 && s.reserved != act + 1 -> break
	   :: else -> skip
	   fi;
	   atomic {
		KEEP;
		s.running = s.running & ~BIT(act);
		s.waiting = s.waiting & ~BIT(act);
		drop_reservation_of(act);
		choose()
	   }
	   publish();
	   if
	   :: ok -> break
	   :: else -> skip
	   fi
	od;
	assert(((truth.running | truth.waiting) & BIT(act)) == 0);
	wake_after();
	forget();
	stop_waiting(slot);
	clean[slot] = true
}

/* arb_reclaim_look(), arb_reclaim_slot() */
inline look_at(slot)
{
	if
	:: atomic { byte_of[slot] == NONE -> byte_of[slot] = me };
	   if
	   :: clean[slot] && ((truth.running | truth.waiting) & BIT(slot)) == 0 -> skip
	   :: else -> reclaim_clean(slot)
	   fi;
	   byte_of[slot] = NONE
	:: byte_of[slot] != NONE -> skip
	fi
}

/* patrol(): probes the client that has the reservation, the one that runs, and the first in the queue. */
inline patrol()
{
	do
	:: load();
	   unchanged();
	   if
	   :: ok -> break
	   :: else -> skip
	   fi
	od;
	atomic {
		first_waiter(s.waiting);
		looks = s.running | (next != NONE -> BIT(next) : 0) | (s.reserved -> BIT(s.reserved - 1) : 0);
		looks = looks & ~BIT(me);
		next = NONE
	}
	forget();
	do
	:: looks & BIT(0) -> looks = looks & ~BIT(0); look_at(0)
	:: looks & BIT(1) -> looks = looks & ~BIT(1); look_at(1)
#if N > 2
	:: looks & BIT(2) -> looks = looks & ~BIT(2); look_at(2)
#endif
	:: looks == 0 -> break
	od
}

proctype client(byte me)
{
	record s, old;
	byte h, w, act, j, next = NONE, looks, rounds = ROUNDS;
	bool ok, got, chosen;

join:
	{
		/* join(): takes the byte, and cleans what a dead predecessor left. A live reclaimer lets go of the
		 * byte. */
		atomic { byte_of[me] == NONE -> byte_of[me] = me };
		if
		:: !clean[me] -> reclaim_clean(me)
		:: else -> skip
		fi;
		clean[me] = false;
end_idle:
		do
		:: atomic { ROUNDS == 0 || rounds > 0 -> rounds = rounds - (ROUNDS -> 1 : 0) };
			/* gpuarb_client_wait() */
			do
			::
#ifndef MUT_WORD_LATE
			   changed[me] = false;
#endif
			   enter();
			   if
			   :: got -> got = false; break
			   :: else -> skip
			   fi;
			   if
			   :: atomic { giveups > 0 -> giveups-- }; give_up(); goto end_idle
			   :: true -> skip
			   fi;
#ifdef MUT_WORD_LATE
			   changed[me] = false;
#endif
			   atomic { asleep[me] = !changed[me]; changed[me] = false };
			   if
			   :: !asleep[me] -> skip
			   :: atomic { asleep[me] && MAY_TIME_OUT -> asleep[me] = false }; patrol()
			   fi
			od;
			stop_waiting(me);
			/* Runs; then gpuarb_client_leave(). */
			leave()
		:: true -> break /* wants nothing more; its slot stays joined */
		od;
end_quiet:
		false
	} unless {
		killed[me]
	};
	d_step {
		s.reserved = 0; s.running = 0; s.waiting = 0;
		old.reserved = 0; old.running = 0; old.waiting = 0;
		h = 0; w = 0; act = 0; j = 0; next = NONE; looks = 0; rounds = ROUNDS;
		ok = false; got = false; chosen = false
	}
	if
	:: true -> killed[me] = false; goto join
	:: true -> skip
	fi
}

/* Time and death. A killed process has lost its bytes at once. */
active proctype world()
{
	byte i, k;

end_world:
	do
	:: atomic { MAY_LAPSE -> late = true }
#if CRASHES > 0
	:: atomic {
			crashes > 0 && ANY_ALIVE;
			if
			:: ALIVE(0) -> i = 0
			:: ALIVE(1) -> i = 1
#if N > 2
			:: ALIVE(2) -> i = 2
#endif
			fi;
			crashes--;
			killed[i] = true;
			believes[i] = false;
			asleep[i] = false;
			changed[i] = false;
			fresh[i] = false;
			knows[i] = false;
			reads[i] = 0;
			writes[i] = 0;
			tidy(k);
			byte_of[0] = (byte_of[0] == i -> NONE : byte_of[0]);
			byte_of[1] = (byte_of[1] == i -> NONE : byte_of[1]);
#if N > 2
			byte_of[2] = (byte_of[2] == i -> NONE : byte_of[2]);
#endif
			i = 0
		}
#endif
	od
}

init {
	atomic {
		clean[0] = true;
		clean[1] = true;
		run client(0);
		run client(1);
#if N > 2
		clean[2] = true;
		run client(2)
#endif
	}
}

#ifdef LIVENESS
/* A client that waits gets the lease, dies, or gives up. */
ltl served0 { [] (WAITS(0) -> <> (RUNS(0) || !WAITS(0))) }
ltl served1 { [] (WAITS(1) -> <> (RUNS(1) || !WAITS(1))) }
/* The lease of a dead client comes back as long as somebody waits for it. */
ltl recovered { [] ((RUNS(0) && !ALIVE(0) && WAITS(1)) -> <> (!RUNS(0) || !WAITS(1))) }
#endif
