#!/bin/sh
# What the house asks of the tree itself: headers that compile alone, includes that go downwards only, each
# third-party header in its one home, no hand-written file that has grown too long.
set -u
cd "$(dirname "$0")/.." || exit 1
CC=${CC:-cc}
bad=0
say() {
	echo "tree: $*" >&2
	bad=$((bad + 1))
}

for h in include/gpuarb.h include/gpuarb/*.h shm/*.h test/*.h bench/*.h; do
	echo "#include \"$h\"" | $CC -std=gnu11 -D_GNU_SOURCE -Iinclude -Ishm -I. -fsyntax-only -x c - 2>/dev/null ||
		say "$h does not compile alone"
done
if command -v g++ >/dev/null; then
	for h in gpuarb gpuarb/client gpuarb/control; do
		echo "#include \"$h.h\"" | g++ -Iinclude -fsyntax-only -x c++ - 2>/dev/null ||
			say "$h.h does not compile as C++"
	done
fi

# below FILES what-they-must-not-include
below() {
	grep -nE "#include \"($2)\.h\"" $1 && say "an include that goes upwards: $1"
}
l1='shm/atomic.h shm/os.c shm/os.h shm/text.h shm/lock.c shm/lock.h shm/config.c shm/config.h shm/error.h shm/rights.c shm/rights.h shm/spelling.c shm/spelling.h shm/command.c shm/command.h shm/environment.c shm/environment.h shm/limits_file.c shm/limits_file.h'
l2='shm/segment.c shm/file.c shm/slot.c shm/snapshot.c shm/running.c shm/silence.c shm/account.c shm/wait.c shm/events.c shm/settings.c'
below "$l1" 'segment|file|slot|snapshot|running|account|wait|events|settings|client|reclaim|control|check'
below "$l2" 'client|reclaim|control|check'
below 'shm/policy.c' 'atomic|os|segment|slot|running|account|config|settings'
below 'shm/snapshot.c shm/running.c shm/wait.c' 'account|settings|slot'

only() {
	for f in $(grep -lE "#include <$1>" shm/*.[ch] preload/*.[ch] tools/*.[ch] 2>/dev/null); do
		[ "$f" = "$2" ] || say "$f includes <$1>, whose home is $2"
	done
}
only 'atomic_ops\.h' shm/atomic.h
only 'ini\.h' shm/config.c
only 'ncurses\.h' tools/top_screen.c

grep -nE '\.timeout = [0-9]' test/*.c test/sim/*.c &&
	say "Criterion waits for ever after its own timeout: test/alarm.h is the deadline of each test"

for f in $(git ls-files '*.c' '*.h' 2>/dev/null); do
	n=$(wc -l <"$f")
	[ "$n" -le 600 ] || say "$f has $n lines: divide it"
done

[ "$bad" = 0 ] || exit 1
echo "tree: headers compile alone, includes go downwards"
