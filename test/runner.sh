#!/bin/bash
# Tests what runs the parts of `make check`, with parts that are made for it: a part that hangs, with children that
# ignore SIGTERM, have stopped themselves or have left the session; one that fails; one that is skipped; one that
# leaves processes behind; one that prints what it was given; two that run at the same time, and one that must be
# alone; and a user who interrupts it.
# Usage: runner.sh BUILD
set -u
build=$(readlink -f "$1")
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
say() {
	echo "runner: $*" >&2
	bad=$((bad + 1))
}
has() { # FILE PATTERN
	grep -qE -- "$2" "$work/$1" || { say "$1: no line matches '$2':"; sed 's/^/    /' "$work/$1" >&2; }
}
hasnt() { # FILE PATTERN
	! grep -qE -- "$2" "$work/$1" || say "$1: a line matches '$2': $(grep -m 1 -E -- "$2" "$work/$1")"
}
# No other process sleeps for exactly this long.
nap=$((100000 + $$)).25
echo "$nap" >"$work/nap"
sleepers() { grep -lsxzF -f "$work/nap" /proc/[0-9]*/cmdline; }
nobody() { # WHEN
	local left
	left=$(sleepers)
	[ -z "$left" ] || say "$1: still there: $left"
}
# Processes that a part starts; each reports that it is there.
cat >"$work/stubborn" <<END
#!/bin/bash
# None of them is ended by a signal to the process group.
(trap '' TERM INT HUP; exec sleep $nap) &
setsid sh -c 'trap "" TERM; sleep $nap & wait; sleep $nap' &
(setsid setsid sleep $nap </dev/null >/dev/null 2>&1 &)
sh -c 'kill -STOP \$\$; sleep $nap' &
touch "$work/hangs"
END
# Replaces make: --no-print-directory TARGET.
mkdir "$work/bin"
cat >"$work/bin/make" <<END
#!/bin/bash
case \$2 in
passes) echo "all is well" ;;
fails)
	echo "a line before"
	echo "test/x.c:7: not true: a == b: they differ" >&2
	echo "[----] test/y.c:8: Assertion Failed"
	for i in \$(seq 99); do echo "[----]   screen \$i"; done
	echo "[FAIL] top::shows_it: (0.01s)"
	exit 2 ;;
takes-a-while) sleep 4 ;;
says-little) echo "nothing that looks like a sentence"; exit 2 ;;
is-skipped)
	echo "is-skipped: skipped: there is nothing to try it with"
	test/skipped.sh 77 ;;
hangs)
	bash "$work/stubborn"
	trap '' TERM
	while :; do sleep $nap; done ;;
leaves) (setsid sleep $nap </dev/null >/dev/null 2>&1 &) ;;
looks)
	(trap 'echo interrupted' INT; kill -INT \$BASHPID)
	[ -z "\$(cat)" ] && echo "nothing to read"
	echo "SIGINT \$(awk '/SigIgn/ { print substr(\$2, 16) }' /proc/self/status)" ;;
dies) kill -KILL \$\$ ;;
# Each is done when both have met.
one | other)
	touch "$work/\$2.here"
	echo "\$2 begins"
	for _ in \$(seq 150); do
		[ ! -e "$work/one.here" ] || [ ! -e "$work/other.here" ] || { sleep 0.2; echo "\$2 ends"; exit 0; }
		sleep 0.1
	done
	echo "\$2: error: it is alone"
	exit 2 ;;
# No other part may run at the same time.
lonely)
	touch "$work/lonely.here"
	sleep 0.5
	echo "\$(pgrep -fc "^/bin/bash $work/bin/make") of us" ;;
esac
END
chmod +x "$work/bin/make"
run() { # OUTPUT TARGET...: the exit status is that of run-checks.sh
	local out=$1
	shift
	mkdir -p "$work/build/test"
	ln -sf "$build/test/deadline" "$work/build/test/deadline"
	MAKE="$work/bin/make" MAKEFLAGS='' DEADLINE=20 DEADLINES="${deadlines:-hangs=4 leaves=4}" PRESSURE="${pressure:-}" test/run-checks.sh "$work/build" "$@" >"$work/$out" 2>&1
}

# On a busy machine the deadline is up to four times as far away, and no farther. This file says what the kernel
# would.
pressure=$work/pressure
press() { printf 'some avg10=0.00 avg60=0.00 avg300=0.00 total=%s\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n' "$1" >"$pressure.new" && mv "$pressure.new" "$pressure"; }
press "$(date +%s%6N)"
(while :; do press "$(date +%s%6N)"; sleep 0.1; done) &
presser=$!
deadlines="takes-a-while=2 hangs=1" run busy takes-a-while hangs
kill $presser && wait $presser 2>/dev/null
pressure=''
has busy '^check: hangs was not done in time'
hasnt busy '^check: takes-a-while '
has busy '^1 passed, 1 failed$'
deadlines="takes-a-while=2" run quiet takes-a-while
has quiet '^check: takes-a-while was not done in time'

run good passes looks && :
[ $? = 0 ] || say "two parts that pass: not 0"
has good '^2 passed, 0 failed$'
hasnt good '^check: (passes|looks) '

run all passes fails is-skipped says-little hangs leaves dies looks
[ $? = 1 ] || say "parts that fail: not 1"
nobody "after parts that hang or leave processes"
[ -e "$work/hangs" ] || say "the part that hangs did not start its children"
has all '^== 8 of 8: looks'
has all '^deadline: hangs was not done after 4 s and is killed, with all that it has running:$'
has all "^    pid [0-9]+, state T, in [a-z0-9_ ]+: sh -c kill -STOP"
has all '^deadline: leaves is done and left processes behind'
# What is printed after the last part says what happened to each.
sed '1,/^check: 8 parts in/d' "$work/all" >"$work/end"
has end '^check: is-skipped: is-skipped: skipped: there is nothing to try it with$'
has end "^check: fails failed after [0-9]+ s.*/build/check/fails.log; 'make fails' runs it alone"
has end '^    test/x.c:7: not true: a == b: they differ$'
hasnt end 'a line before'
has end '^    \[----\] test/y.c:8: Assertion Failed$'
has end '^    \[----\]   screen 5$'
hasnt end 'screen 6$'
has end '^    \[FAIL\] top::shows_it'
has end '^    nothing that looks like a sentence$'
has end '^check: hangs was not done in time: killed after [0-9]+ s'
has end '^    deadline: hangs was not done after 4 s'
has end '^check: leaves failed'
has end '^check: dies failed'
hasnt end 'all is well'
[ "$(tail -n 1 "$work/all")" = '2 passed, 5 failed, 1 skipped' ] || say "the last line: $(tail -n 1 "$work/all")"
grep -qx 'a line before' "$work/build/check/fails.log" || say "the log of the part that fails is not complete"

# Parts that run at the same time: two at a time, each shown as a whole, then the others alone. A part that hangs or
# fails does not stop the others.
BESIDE="one other hangs fails" AT_ONCE=2 run beside lonely one fails hangs other passes
[ $? = 1 ] || say "beside one another, with parts that fail: not 1"
nobody "after parts beside one another"
has beside '^== 4 of 6 parts run beside one another, 2 at a time'
has beside '^== 6 of 6: passes'
has beside '^1 of us$'
for target in one other; do
	grep -A 2 "^== . of 6: $target" "$work/beside" | tail -n 2 | tr '\n' ',' | grep -qx "$target begins,$target ends," || say "$target was not shown as a whole, or was alone"
done
has beside '^deadline: hangs was not done after 4 s'
[ "$(tail -n 1 "$work/beside")" = '4 passed, 2 failed' ] || say "beside one another: $(tail -n 1 "$work/beside")"
rm -f "$work/one.here" "$work/other.here"
BESIDE="one other" AT_ONCE=1 DEADLINES="" run single passes one >/dev/null
hasnt single 'beside one another'

# Whatever its caller ignores, a part can be interrupted, and its standard input is empty.
(trap '' INT QUIT TERM HUP; run ignoring looks <"$work/all") || say "with signals ignored: $?"
has ignoring '^interrupted$'
has ignoring '^nothing to read$'
has ignoring '^SIGINT 0'

# It is interrupted: first the whole group, as from a terminal, then the runner alone; both also while parts run at
# the same time.
for how in INT TERM INT-beside TERM-beside; do
	rm -f "$work/hangs"
	(
		# The signal is not ignored, although the process is in the background.
		exec python3 - "$how" "$work" "$build" 3>&1 >"$work/told-$how" 2>&1 <<'PYTHON'
import os, signal, subprocess, sys, time
how, work, build = sys.argv[1:]
env = dict(os.environ, MAKE=work + "/bin/make", MAKEFLAGS="", DEADLINE="60", DEADLINES="", AT_ONCE="2",
           BESIDE="hangs fails" if "beside" in how else "")
def fresh():
    os.setsid()
    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, signal.SIG_DFL)
targets = ["hangs", "fails", "passes"] if "beside" in how else ["hangs", "passes"]
p = subprocess.Popen(["test/run-checks.sh", work + "/build"] + targets, env=env, preexec_fn=fresh)
until = time.monotonic() + 30
while not os.path.exists(work + "/hangs") and time.monotonic() < until:
    time.sleep(0.05)
if "INT" in how:
    os.killpg(p.pid, signal.SIGINT)
else:
    os.kill(p.pid, signal.SIGTERM)
print("ended with", p.wait(timeout=40), flush=True)
PYTHON
	)
	for _ in $(seq 200); do
		[ -n "$(sleepers)" ] || break
		sleep 0.1
	done
	nobody "interrupted by SIG$how"
	hasnt "told-$how" 'of [23]: passes'
done
has told-INT '^check: hangs was interrupted after'
has told-INT '^0 passed, 1 failed$'
has told-INT '^ended with 130$'
has told-TERM '^ended with -15$'
has told-INT-beside '^check: hangs was interrupted after'
has told-INT-beside '^0 passed, 2 failed$'
has told-INT-beside '^ended with 130$'
has told-TERM-beside '^ended with 143$'

# Variables about gpuarb and the GPU in the caller's environment do not reach a test; but LD_PRELOAD does reach an
# installation under fakeroot.
probe() { GPUARB_DIR=/nope GPUARB_ACCOUNT="" GPUSIM_MODE=nope CUDA_VISIBLE_DEVICES=9 LD_PRELOAD=libm.so.6 HELLO=1 make -s --eval "$1:;@env" "$1"; }
probe check-probe >"$work/check-env" 2>&1
has check-env '^HELLO=1$'
hasnt check-env '^(GPUARB_|GPUSIM_|CUDA_|LD_PRELOAD)'
probe probe >"$work/other-env" 2>&1
has other-env '^LD_PRELOAD=libm'
has other-env '^GPUARB_DIR=/nope$'

# make -n makes nothing, and keeps the logs of the last check.
MAKEFLAGS=n MAKE=false test/run-checks.sh "$work/build" passes >"$work/dry" || say "make -n: $?"
has dry '^make passes$'
[ -e "$work/build/check/hangs.log" ] || say "make -n has removed the logs"

# Wrong arguments.
for wrong in '' '10 name' '0 name true' 'x name true' '-z 1 name true'; do
	# shellcheck disable=SC2086
	"$build/test/deadline" $wrong >"$work/usage" 2>&1
	[ $? = 2 ] || say "deadline $wrong: not 2"
	has usage '^usage: deadline'
done

[ $bad = 0 ] || exit 1
echo "runner: parts that hang, fail, are skipped, leave processes or are interrupted end, and are named"
