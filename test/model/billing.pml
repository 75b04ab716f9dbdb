/*
 * Billing by two words, as in shm/segment/running.c: the CAS decides which of acc, total and evicted_v counts.
 * Asserted with every store that could break it: the bills add up to the busy clock.
 *
 * -DNC=c     clients; they enter and leave in any order, also twice in a row
 * -DNE=e     other processes: they count the clock on, evict a client that seems to stand still, reclaim a dead one
 * -DOPS=k    transitions that a client tries; -DOPS1=k those of the second client; -DEOPS=k those of the others
 * -DVMAX=v   how far the clock V runs; each transition moves it by 0 or 1
 * -DCRASHES=k  kills
 * -DRUNNING  all clients are in the set to begin with, which saves the steps that lead there
 * -DMUT_...  a deliberate mistake, see models.sh
 *
 * A client may "seem to stand still" at any moment. The sequence number is a bit per process, as in handover.pml.
 */
#ifndef NC
#define NC 2
#endif
#ifndef NE
#define NE 1
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef OPS1
#define OPS1 OPS
#endif
#ifndef EOPS
#define EOPS 2
#endif
#ifndef VMAX
#define VMAX 2
#endif
#ifndef CRASHES
#define CRASHES 0
#endif

#define NS     (NC + NE)
#define NONE   255
#define BIT(i) (1 << (i))

/* The shape is one word: the sum of the weights, and whether any client is evicted. If none is, the record's evicted
 * bits are neither written nor read. */
typedef record {
	byte v;
	byte busy;
	byte weight;
	bool any_evicted;
	byte running;
	byte evicted
};

typedef words {
	short acc;
	short total;
	byte weight = 1;
	byte evicted_v
};

record buf[2 * NS];
byte head;
bool fresh[NS];
byte reads[NS], writes[NS]; /* as in handover.pml */
record truth;

words slot[NC];
byte generation[NC];
byte byte_of[NC] = NONE;
byte evict_byte[NC] = NONE;
bool killed[NS];
byte crashes = CRASHES;

#define ALIVE(i)   (byte_of[i] == i && !killed[i])
#define MIN(a, b)  ((a) < (b) -> (a) : (b))
/* counted(), over record r */
#define USAGE(r, i) \
	((r.running & BIT(i)) -> slot[i].acc + slot[i].weight * r.v : \
	((r.evicted & BIT(i)) -> slot[i].acc + slot[i].weight * MIN(r.v, slot[i].evicted_v) : slot[i].total))
#define WEIGHT(i)  ((truth.running & BIT(i)) -> slot[i].weight : 0)
#if NC > 1
#define BILLS      (USAGE(truth, 0) + USAGE(truth, 1))
#define WEIGHTS    (WEIGHT(0) + WEIGHT(1))
#else
#define BILLS      (USAGE(truth, 0))
#define WEIGHTS    (WEIGHT(0))
#endif
#define LAW        assert(BILLS == truth.busy && WEIGHTS == truth.weight)

#define IN_HANDS(b, i) (reads[i] == b + 1 || writes[i] == b + 1)
#if NS > 2
#define IN_USE(b) (head == b || IN_HANDS(b, 0) || IN_HANDS(b, 1) || IN_HANDS(b, 2))
#else
#define IN_USE(b) (head == b || IN_HANDS(b, 0) || IN_HANDS(b, 1))
#endif

inline tidy(k)
{
	for (k : 0 .. 2 * NS - 1) {
		if
		:: !IN_USE(k) ->
			buf[k].v = 0; buf[k].busy = 0; buf[k].weight = 0; buf[k].running = 0; buf[k].evicted = 0;
			buf[k].any_evicted = false
		:: else -> skip
		fi
	}
	k = 0
}

/* load(): the clocks are read and written in one step here. Only what decides may be torn. */
inline load()
{
	do
	:: d_step { h = head; fresh[me] = true; reads[me] = h + 1 };
	   d_step { s.weight = buf[h].weight; s.any_evicted = buf[h].any_evicted };
	   d_step { s.v = buf[h].v; s.busy = buf[h].busy };
	   s.running = buf[h].running;
	   atomic {
		s.evicted = (s.any_evicted -> buf[h].evicted : 0);
		s.any_evicted = false;
		reads[me] = 0;
		tidy(j);
		if
		:: (s.running & s.evicted) == 0 && (s.running != 0) == (s.weight != 0) -> break
		:: else -> assert(!fresh[me]) /* -EBADMSG */
		fi
	   }
	od
}

/* advance() */
inline advance()
{
	if
	:: s.weight > 0 && s.v < VMAX -> d_step { s.v = s.v + 1; s.busy = s.busy + s.weight }
	:: true -> skip
	fi
}

inline publish(act)
{
	w = (h == 2 * (act) -> 2 * (act) + 1 : 2 * (act));
	writes[me] = w + 1;
	if
	:: s.evicted -> buf[w].evicted = s.evicted
	:: else -> skip
	fi;
	d_step { buf[w].v = s.v; buf[w].busy = s.busy };
	d_step { buf[w].weight = s.weight; buf[w].any_evicted = s.evicted != 0 };
	buf[w].running = s.running;
	atomic {
		ok = fresh[me];
		writes[me] = 0;
		if
		:: ok ->
			head = w;
			for (j : 0 .. NS - 1) {
				fresh[j] = false
			}
			assert(s.v >= truth.v && s.busy >= truth.busy);
			truth.v = s.v; truth.busy = s.busy; truth.weight = s.weight;
			truth.running = s.running; truth.evicted = s.evicted;
			LAW
		:: else -> skip
		fi;
		fresh[me] = false;
		tidy(j)
	}
}

inline forget()
{
	d_step {
		s.v = 0; s.busy = 0; s.weight = 0; s.running = 0; s.evicted = 0;
		h = 0; w = 0; ok = false; fresh[me] = false
	}
}

/* take_bill() and the rest of arb_running_settle(): `settled` says whether there was anything. */
inline settle(i)
{
	settled = false;
	do
	:: load();
	   if
	   :: (s.evicted & BIT(i)) == 0 -> break
	   :: else -> skip
	   fi;
	   atomic { slot[i].total = USAGE(s, i); LAW };
	   s.evicted = s.evicted & ~BIT(i);
	   publish(i);
	   if
	   :: ok -> settled = true; break
	   :: else -> skip
	   fi
	od
}

/* arb_running_enter(), admitted */
inline enter(i)
{
	do
	:: load();
	   if
#ifndef MUT_NO_SETTLE
	   :: s.evicted & BIT(i) -> settle(i)
#endif
	   :: s.running & BIT(i) -> break
	   :: else ->
		advance();
#ifndef MUT_ENTER_TORN
		/* A torn copy may show us neither running nor evicted while one of them holds, and acc counts. */
		ok = fresh[me];
		if
		:: !ok -> goto again
		:: else -> skip
		fi;
#endif
#ifndef MUT_ACC_AFTER
		atomic {
			if
			:: slot[i].weight = 1
			:: slot[i].weight = 2
			fi;
			LAW
		}
		atomic { slot[i].acc = slot[i].total - slot[i].weight * s.v; LAW };
#endif
		d_step { s.running = s.running | BIT(i); s.weight = s.weight + slot[i].weight
#ifdef MUT_NO_SETTLE
			; s.evicted = s.evicted & ~BIT(i)
#endif
		};
		publish(i);
		if
		:: ok ->
#ifdef MUT_ACC_AFTER
			atomic { slot[i].acc = slot[i].total - slot[i].weight * s.v; LAW };
#endif
			break
		:: else -> skip
		fi
	   fi;
again:	   skip
	od;
	forget()
}

/* arb_running_leave(). Afterwards the client is not in the set. */
inline leave(i)
{
	do
	:: load();
	   if
	   :: ((s.running | s.evicted) & BIT(i)) == 0 ->
		/* A torn copy may show it neither in the set nor evicted. */
#ifndef MUT_LEAVE_TORN
		if
		:: fresh[me] -> break
		:: !fresh[me] -> skip
		fi
#else
		break
#endif
	   :: s.evicted & BIT(i) ->
		settle(i);
		/* Nothing to settle: the copy was torn, or the evictor lost its CAS. */
#ifndef MUT_SETTLE_NOTHING
		if
		:: settled -> break
		:: else -> skip
		fi
#else
		break
#endif
	   :: s.running & BIT(i) ->
		advance();
#ifndef MUT_TOTAL_AFTER
		atomic { slot[i].total = slot[i].acc + slot[i].weight * s.v; LAW };
#endif
		d_step { s.running = s.running & ~BIT(i); s.weight = s.weight - slot[i].weight };
		publish(i);
		if
		:: ok ->
#ifdef MUT_TOTAL_AFTER
			atomic { slot[i].total = slot[i].acc + slot[i].weight * s.v; LAW };
#endif
			break
		:: else -> skip
		fi
	   fi
	od;
	atomic { settled = false; assert(((truth.running | truth.evicted) & BIT(i)) == 0) };
	forget()
}

/* arb_running_drop() by the holder of byte i */
inline drop(i)
{
	do
	:: load();
	   if
	   :: ((s.running | s.evicted) & BIT(i)) == 0 ->
#ifndef MUT_DROP_TORN
		if
		:: fresh[me] -> break
		:: !fresh[me] -> skip
		fi
#else
		break
#endif
	   :: else ->
		advance();
		if
		:: s.running & BIT(i) ->
			atomic { slot[i].total = slot[i].acc + slot[i].weight * s.v; LAW };
			d_step { s.running = s.running & ~BIT(i); s.weight = s.weight - slot[i].weight }
		:: else ->
			atomic { slot[i].total = USAGE(s, i); LAW };
			s.evicted = s.evicted & ~BIT(i)
		fi;
		publish(i);
		if
		:: ok -> break
		:: else -> skip
		fi
	   fi
	od;
	atomic { skip; assert(((truth.running | truth.evicted) & BIT(i)) == 0) };
	forget()
}

/* arb_reclaim_evict(): under the eviction byte, arb_running_evict() through the evictor's own buffers. */
inline evict(i)
{
	gen = generation[i];
	if
	:: atomic { evict_byte[i] == NONE -> evict_byte[i] = me };
	   do
	   :: load();
	      if
	      :: (s.running & BIT(i)) == 0 || generation[i] != gen -> break
	      :: true -> break /* its heart beats again */
	      :: (s.running & BIT(i)) && generation[i] == gen -> skip
	      fi;
	      advance();
	      gone = slot[i].weight;
	      atomic { slot[i].evicted_v = s.v; LAW };
	      /* A weight that was changed meanwhile fails the CAS; until then it is only kept from wrapping around.
	       */
	      d_step {
		s.running = s.running & ~BIT(i);
		s.evicted = s.evicted | BIT(i);
		s.weight = (s.weight >= gone -> s.weight - gone : 0);
		gone = 0
	      }
	      publish(me);
	      if
	      :: ok -> break
	      :: else -> skip
	      fi
	   od;
	   evict_byte[i] = NONE
	:: evict_byte[i] != NONE -> skip
	fi;
	gen = 0;
	forget()
}

proctype client(byte me)
{
	record s;
	byte h, w, j, ops = (me == 0 -> OPS : OPS1);
	bool ok, settled;

join:
	{
		atomic { byte_of[me] == NONE -> byte_of[me] = me };
#ifdef RUNNING
		if
		:: generation[me] -> drop(me)
		:: else -> skip
		fi;
#else
		drop(me);
#endif
		generation[me]++;
		do
		:: atomic { ops > 0 -> ops-- };
			if
			:: enter(me)
			:: leave(me)
			fi
		:: true -> break
		od;
end_client:
		false
	} unless {
		killed[me]
	};
	d_step { ok = false; settled = false; s.v = 0; s.busy = 0; s.weight = 0; s.running = 0; s.evicted = 0; h = 0; w = 0; j = 0 }
	if
	:: true -> killed[me] = false; goto join
	:: true -> skip
	fi
}

proctype other(byte me)
{
	record s;
	byte h, w, j, gen, gone, ops = EOPS;
	bool ok;

	{
		do
		:: atomic { ops > 0 -> ops-- };
			if
			:: load(); advance(); publish(me); forget() /* arb_running_roll() */
			:: evict(0)
#if NC > 1
			:: evict(1)
#endif
			:: atomic { byte_of[0] == NONE -> byte_of[0] = me }; drop(0); byte_of[0] = NONE
			fi
		:: true -> break
		od;
end_other:
		false
	} unless {
		killed[me]
	}
}

active proctype world()
{
	byte i, k;

end_world:
	do
#if CRASHES > 0
	:: atomic {
			crashes > 0 && (ALIVE(0) || ALIVE(NC - 1) || !killed[NC]);
			if
			:: ALIVE(0) -> i = 0
#if NC > 1
			:: ALIVE(1) -> i = 1
#endif
			:: !killed[NC] -> i = NC
			fi;
			crashes--;
			killed[i] = true;
			fresh[i] = false;
			reads[i] = 0;
			writes[i] = 0;
			for (k : 0 .. NC - 1) {
				byte_of[k] = (byte_of[k] == i -> NONE : byte_of[k]);
				evict_byte[k] = (evict_byte[k] == i -> NONE : evict_byte[k])
			}
			tidy(k);
			i = 0
		}
#else
	:: false
#endif
	od
}

init {
	atomic {
#ifdef RUNNING
		truth.running = BIT(NC) - 1;
		truth.weight = NC;
		buf[0].running = BIT(NC) - 1;
		buf[0].weight = NC;
#endif
		run client(0);
#if NC > 1
		run client(1);
#endif
		run other(NC);
#if NE > 1
		run other(NC + 1)
#endif
	}
}
