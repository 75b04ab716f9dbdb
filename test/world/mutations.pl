#!/usr/bin/perl
# Deliberate mistakes in a copy of the product, one at a time: how many seeds does the world need for each?
# mutations.pl COPY MAKE-COMMAND... ; the copy is a tree of its own, which is changed and put right again.
use strict;
use warnings;

my ($copy, @make) = @ARGV;
my $only = $ENV{ONLY} // '';
my $seeds = $ENV{SEEDS} // 10000;

# what it is, where, the text that is replaced (it must be there), what by, which worlds look for it
my @mutations = (
	['who hands over wakes nobody', 'shm/turn.c',
		'arb_os_wake(&c->seg.slots[move->next].wake);', '(void)c;', '--segments'],
	['a wake-up does not change the word', 'shm/os.c', 'arb_add32_full(word, 1);', '', '--segments'],
	['the futex word is loaded after the decision', 'shm/turn.c',
		"\t*seen = r < 0 ? 0 : arb_load32_acquire(&arb_client_slot(c)->wake);\n\treturn r < 0 ? r : enter(c, work, true, false, snap);",
		"\tif (r == 0)\n\t\tr = enter(c, work, true, false, snap);\n\t*seen = arb_load32_acquire(&arb_client_slot(c)->wake);\n\treturn r;", '--segments'],
	['who gives up keeps the reservation', 'shm/running.c',
		"s->waiting[word] &= ~bit;\n\t\tdrop_reservation_of(s, me->slot);\n\t\tchoose(me->seg, move, s, false);",
		"s->waiting[word] &= ~bit;\n\t\tchoose(me->seg, move, s, false);", '--segments'],
	['entering forgets what was billed before', 'shm/running.c',
		'arb_store64(&slot->acc, arb_load64(&slot->total) - (uint64_t)weight * s->v);',
		'arb_store64(&slot->acc, 0 - (uint64_t)weight * s->v);', '--segments'],
	['leaving bills by the window\'s beginning', 'shm/running.c',
		'arb_load64(&slot->acc) + w * s->v);', 'arb_load64(&slot->acc) + w * s->win_v);', '--segments'],
	['leaving keeps its weight in the set', 'shm/running.c', 's->weight -= by;', '(void)by;', '--segments'],
	['an evicted client enters without settling', 'shm/running.c',
		"if (__builtin_expect(s->evicted[word] & bit, 0)) {\n\t\t\tr = arb_running_settle(me, s);\n\t\t\tif (r < 0)\n\t\t\t\treturn r;\n\t\t\tmove->returned |= r == 1;\n\t\t\tcontinue;\n\t\t}\n\t\tif (s->running",
		"s->evicted[word] &= ~bit;\n\t\tif (s->running", '--segments'],
	['who enters stays in the queue', 'shm/running.c',
		"s->running[word] |= bit;\n\t\ts->waiting[word] &= ~bit;", 's->running[word] |= bit;', '--segments'],
	['a record is written into the head\'s buffer', 'shm/snapshot.h',
		'== own ? own | 1 : own;', '== own ? own : own;', '--segments'],
	['the head is stored, not compared', 'shm/snapshot.h',
		'if (!arb_cas64_full(&seg->header->head, s->head, next)) /* SNAPSHOT_PUBLISH */',
		'arb_store64(&seg->header->head, next);' . "\n\tif (0)", '--segments'],
	['the record is written after it was published', 'shm/snapshot.h',
		"\tif (!arb_cas64_full(&seg->header->head, s->head, next)) /* SNAPSHOT_PUBLISH */\n\t\treturn false;",
		"\tif (!arb_cas64_full(&seg->header->head, s->head, next))\n\t\treturn false;\n\tarb_store64(&r->v, s->v);", '--segments',
		"\tarb_store64(&r->v, s->v);\n\tarb_store64(&r->busy", "\tarb_store64(&r->busy"],
	['a torn record is believed', 'shm/snapshot.h',
		'return arb_load64(&seg->header->head) == s->head;', 'return s->head == s->head;', '--segments'],
	['busy time is counted once too often', 'shm/snapshot.h',
		's->busy += steps * s->weight;', 's->busy += steps * s->weight + 1;', '--segments'],
	['a window rolls one too far', 'shm/snapshot.c',
		'uint64_t n = (to - s->win_start) / s->win_ticks;', 'uint64_t n = (to - s->win_start) / s->win_ticks + 1;', '--segments'],
	['the window\'s clock is not taken over', 'shm/snapshot.c', 's->win_v = s->v;', '', '--segments'],
	['a cap is not moved when a window begins', 'shm/account_cap.c',
		"if (s->window != run->win_number)\n\t\t\troll_to(seg, run, terms, s);", 's->window = run->win_number;', '--segments'],
	['a cap is moved twice when a window begins', 'shm/policy.c',
		"return usage + grant;", 'return usage + 2 * grant;', '--segments'],
	['a debt is forgotten', 'shm/policy.c',
		'return usage - (debt - paid) + grant;', 'return usage + grant;', '--segments'],
	['two run where one may', 'shm/policy.c',
		'(!c->reserved_for_other && c->running == 0)', '(!c->reserved_for_other && c->running <= 1)', '--segments'],
	['the memory word that counts is overwritten', 'shm/account.c',
		'arb_store64(&slot->mem[!odd], mine + (uint64_t)bytes);', 'arb_store64(&slot->mem[odd], mine + (uint64_t)bytes);', '--segments'],
	['a quota lets one byte too many pass', 'shm/account.c',
		'(uint64_t)bytes > quota - s.mem_used)', '(uint64_t)bytes > quota - s.mem_used + 1)', '--segments'],
	['a dead member\'s memory is kept', 'shm/account.c',
		'acct.mem_used = acct.mem_used > mem ? acct.mem_used - mem : 0;', '', '--segments'],
	['a departed member\'s usage is lost', 'shm/account.c',
		'acct.folded += arb_load64(&s->total) - arb_load64(&s->base);', '', '--segments'],
	['a newcomer inherits the bill of its slot', 'shm/account.c',
		'arb_store64(&s->base, arb_load64(&s->total));', '', '--segments'],
	['detaching publishes from the slot\'s buffer', 'shm/account.c',
		"arb_store64(&seg->accounts[a].used_at, arb_os_now_ns());\n\t\tif (account_publish(seg, a, ARB_HOME, &acct))",
		"arb_store64(&seg->accounts[a].used_at, arb_os_now_ns());\n\t\tif (account_publish(seg, a, slot, &acct))", '--segments'],
	['home is written without the directory\'s lock', 'shm/reclaim.c',
		'r = arb_slot_directory(seg, &directory);', "directory = (struct arb_lock){.fd = -1};\n\tr = 0;", '--segments'],
	['a slot is free before it is clean', 'shm/reclaim.c',
		"arb_store32(&s->state, ARB_SLOT_JOINING);\n\tarb_store32(&s->gate, 0);",
		"arb_store32(&s->state, ARB_SLOT_FREE);\n\tarb_store32(&s->gate, 0);", '--segments'],
	['a dead client stays in the set', 'shm/reclaim.c',
		'r = arb_running_drop(&me, &move, &snap);', 'r = 0;', '--segments'],
	['work that has ended is billed until it is noticed', 'preload/stay.c',
		"\tend = t->last_end_ns;\n\tif (t->loose)", "\tend = now;\n\tif (t->loose)", '--programs'],
	['the end of the quota is not heeded', 'preload/stay.c',
		'return r == -EDQUOT || r == -EAGAIN;', 'return false;', '--programs'],
	['the tracker is never woken', 'preload/tracker.c',
		'if (__atomic_load_n(&arb_own.asleep, __ATOMIC_SEQ_CST) < least)', 'if (least)', '--programs'],
	['launches that passed on credit have no marker', 'preload/markers.c',
		't->outstanding -= m->launches;', 't->outstanding = 0;', '--programs'],
	['memory is not counted', 'preload/memory.c',
		"\tcase CAT_ALLOC:\n\tcase CAT_ARRAY:\n\t\tfollow_fork();\n\t\treturn memory_plain_before(call, result);",
		"\tcase CAT_ALLOC:\n\tcase CAT_ARRAY:\n\t\treturn true;", '--programs'],
);

sub slurp { open my $f, '<', $_[0] or die "$_[0]: $!\n"; local $/; return <$f>; }
sub spew { open my $f, '>', $_[0] or die "$_[0]: $!\n"; print $f $_[1]; close $f; }

my ($bad, $n) = (0, 0);
for my $m (@mutations) {
	my ($name, $file, $old, $new, $worlds, $old2, $new2) = @$m;
	next if $only && $name !~ /$only/;
	$n++;
	my $text = slurp("$copy/$file");
	my $changed = $text;
	for ([$old, $new], $old2 ? [$old2, $new2] : ()) {
		my $at = index($changed, $_->[0]);
		die "mutations: $file has changed: '$name' is no longer there\n" if $at < 0;
		substr($changed, $at, length $_->[0]) = $_->[1];
	}
	spew("$copy/$file", $changed);
	my $out = `cd $copy && @make 2>&1`;
	my $built = $? == 0;
	my $minutes = $ENV{MINUTES} // 2;
	my $said = $built ? `cd $copy && timeout 900 build/world $worlds --seeds 1..$seeds --minutes $minutes 2>&1` : $out;
	spew("$copy/$file", $text);
	die "mutations: '$name' does not compile:\n$out" unless $built;
	if ($said =~ /seed (\d+) failed[^\n]*\n\s*([^\n]*)/) {
		printf "%-52s seed %6d  %s\n", $name, $1, substr($2, 0, 100);
	} elsif ($? & 127 || $? >> 8 > 1) {
		printf "%-52s it crashed\n", $name;
	} else {
		printf "%-52s NOT FOUND: %s\n", $name, ($said =~ /(world: \d+ seeds[^\n]*)/)[0] // 'no answer';
		$bad++;
	}
	$| = 1;
}
printf "mutations: %d of %d found\n", $n - $bad, $n;
exit($bad ? 1 : 0);
