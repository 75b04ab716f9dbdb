/*
 * An account's record, as in shm/segment/account.c: published from the buffers of an attached slot, or, when a slot
 * is attached or detached, from the account's home buffers under the directory's lock. Which of a slot's two
 * memory words counts is the record's parity bit.
 *
 * -DCRASHES=k, -DOPS=k as in billing.pml; -DMUT_... a deliberate mistake, see models.sh
 *
 * Asserted with every store that could break it: mem_used is the sum of the valid words of the attached
 * slots, and the head is home or in an attached slot.
 */
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef OPS
#define OPS 2
#endif

#define N      2
#define HOME   N
#define QUOTA  2
#define NONE   255
#define BIT(i) (1 << (i))

typedef record {
	byte used;
	byte attached;
	byte parity
};

typedef words {
	byte mem[2]
};

record buf[2 * (N + 1)];
byte head = 2 * HOME;
bool fresh[N];
byte reads[N], writes[N]; /* as in handover.pml */
record truth;

words slot[N];
bool clean[N] = true; /* state is ARB_SLOT_FREE */
bool known[N];        /* the slot's account word names the account */
byte byte_of[N] = NONE;
byte directory = NONE;
bool killed[N];
byte crashes = CRASHES;

#define ALIVE(i) (byte_of[i] == i && !killed[i])
#define ANY_ALIVE (ALIVE(0) || ALIVE(1))
#define MEM(i)   ((truth.attached & BIT(i)) -> slot[i].mem[(truth.parity >> i) & 1] : 0)
#define SUMS_UP  assert(truth.used == MEM(0) + MEM(1) && (head / 2 == HOME || (truth.attached & BIT(head / 2))))

#define IN_HANDS(b, i) (reads[i] == b + 1 || writes[i] == b + 1)
#define IN_USE(b)      (head == b || IN_HANDS(b, 0) || IN_HANDS(b, 1))

inline tidy(k)
{
	for (k : 0 .. 2 * N + 1) {
		if
		:: !IN_USE(k) -> buf[k].used = 0; buf[k].attached = 0; buf[k].parity = 0
		:: else -> skip
		fi
	}
	k = 0
}

inline load()
{
	d_step { h = head; fresh[me] = true; reads[me] = h + 1 };
	s.used = buf[h].used;
	s.attached = buf[h].attached;
	atomic { s.parity = buf[h].parity; reads[me] = 0; tidy(j) }
}

inline publish(owner)
{
	w = (h == 2 * (owner) -> 2 * (owner) + 1 : 2 * (owner));
	d_step { writes[me] = w + 1; buf[w].used = s.used };
	buf[w].attached = s.attached;
	buf[w].parity = s.parity;
	atomic {
		ok = fresh[me];
		writes[me] = 0;
		if
		:: ok ->
			head = w;
			fresh[0] = false;
			fresh[1] = false;
			assert(buf[w].used == s.used && buf[w].attached == s.attached && buf[w].parity == s.parity);
			truth.used = s.used; truth.attached = s.attached; truth.parity = s.parity;
			assert(truth.used <= QUOTA);
			SUMS_UP
		:: else -> fresh[me] = false
		fi;
		tidy(j)
	}
}

inline forget()
{
	d_step { s.used = 0; s.attached = 0; s.parity = 0; h = 0; w = 0; ok = false; mine = 0; fresh[me] = false }
}

inline lock_directory()
{
#ifndef MUT_NO_DIRECTORY
	atomic { directory == NONE -> directory = me }
#else
	skip
#endif
}

inline unlock_directory()
{
	directory = (directory == me -> NONE : directory)
}

/* attach() of the client, arb_account_attach() */
inline attach(i)
{
	lock_directory();
	known[i] = true;
	do
	:: load();
	   if
	   :: s.attached & BIT(i) -> break
	   :: else -> skip
	   fi;
	   atomic { slot[i].mem[0] = 0; SUMS_UP };
	   atomic { slot[i].mem[1] = 0; SUMS_UP };
	   d_step { s.attached = s.attached | BIT(i); s.parity = s.parity & ~BIT(i) };
	   publish(HOME);
	   if
	   :: ok -> break
	   :: else -> skip
	   fi
	od;
	unlock_directory();
	forget()
}

/* arb_account_detach(), by the holder of the slot's byte */
inline detach(i)
{
	lock_directory();
	do
	:: load();
	   if
	   :: (s.attached & BIT(i)) == 0 && h / 2 != i -> break
	   :: else -> skip
	   fi;
	   if
	   :: s.attached & BIT(i) ->
		mine = slot[i].mem[(s.parity >> i) & 1];
		d_step {
			s.used = (s.used > mine -> s.used - mine : 0);
			s.attached = s.attached & ~BIT(i);
			s.parity = s.parity & ~BIT(i);
			mine = 0
		}
	   :: else -> skip
	   fi;
#ifdef MUT_DETACH_FROM_SLOT
	   publish(i);
#else
	   publish(HOME);
#endif
	   if
	   :: ok -> break
	   :: else -> skip
	   fi
	od;
	assert((truth.attached & BIT(i)) == 0 && head / 2 != i);
	unlock_directory();
	forget()
}

/* arb_reclaim_clean() as far as the account goes */
inline reclaim_clean(i)
{
	clean[i] = false;
	if
	:: known[i] -> detach(i)
	:: else -> skip
	fi;
	known[i] = false;
	clean[i] = true
}

/* arb_account_mem(): a refusal re-reads the head, the rest is decided by the CAS. */
inline memory(i, bytes)
{
	do
	:: load();
	   mine = slot[i].mem[(s.parity >> i) & 1];
	   if
	   :: !(s.attached & BIT(i)) -> assert(false)
	   :: (s.attached & BIT(i)) && ((bytes > 0 && s.used + bytes > QUOTA) || (bytes < 0 && (mine < 1 || s.used < 1))) ->
		if
		:: fresh[me] -> break
		:: !fresh[me] -> goto retry
		fi
	   :: else -> skip
	   fi;
#ifdef MUT_SAME_WORD
	   atomic { slot[i].mem[(s.parity >> i) & 1] = mine + bytes; SUMS_UP };
#else
	   atomic { slot[i].mem[1 - ((s.parity >> i) & 1)] = mine + bytes; SUMS_UP };
#endif
	   d_step { s.used = s.used + bytes; s.parity = s.parity ^ BIT(i) };
	   publish(i);
	   if
	   :: ok -> break
	   :: else -> skip
	   fi;
retry:	   skip
	od;
	forget()
}

proctype client(byte me)
{
	record s;
	byte h, w, j, mine, ops = OPS;
	short bytes;
	bool ok;

join:
	{
		atomic { byte_of[me] == NONE -> byte_of[me] = me };
		if
		:: !clean[me] -> reclaim_clean(me)
		:: else -> skip
		fi;
		clean[me] = false;
		attach(me);
		do
		:: atomic {
			ops > 0 -> ops--;
			if
			:: bytes = 1
			:: bytes = -1
			fi
		   };
		   memory(me, bytes);
		   bytes = 0
		:: true -> break
		od;
		if
		:: reclaim_clean(me); byte_of[me] = NONE /* gpuarb_client_close() */
		:: true -> skip
		fi;
		/* It may clean up after the other client. */
end_client:
		do
		:: atomic { byte_of[1 - me] == NONE && !clean[1 - me] -> byte_of[1 - me] = me };
		   if
		   :: !clean[1 - me] -> reclaim_clean(1 - me)
		   :: else -> skip
		   fi;
		   byte_of[1 - me] = NONE
		od
	} unless {
		killed[me]
	};
	d_step { s.used = 0; s.attached = 0; s.parity = 0; h = 0; w = 0; j = 0; mine = 0; bytes = 0; ok = false }
	if
	:: true -> killed[me] = false; goto join
	:: true -> skip
	fi
}

active proctype world()
{
	byte i, k;

end_world:
	do
#if CRASHES > 0
	:: atomic {
			crashes > 0 && ANY_ALIVE;
			if
			:: ALIVE(0) -> i = 0
			:: ALIVE(1) -> i = 1
			fi;
			crashes--;
			killed[i] = true;
			fresh[i] = false;
			reads[i] = 0;
			writes[i] = 0;
			byte_of[0] = (byte_of[0] == i -> NONE : byte_of[0]);
			byte_of[1] = (byte_of[1] == i -> NONE : byte_of[1]);
			directory = (directory == i -> NONE : directory);
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
		run client(0);
		run client(1)
	}
}
