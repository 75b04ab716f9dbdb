#!/bin/sh
# Compute limits on unmodified programs on the simulated GPU: they act on every kind of load and hurt none. On a busy
# machine a program gets less than its limit, because it does not ask for more, and it notices late that its work has
# ended. So what it got is compared with the time in which it ran or was held up, and its bill is compared with what
# it got. From both the time is taken off in which its threads waited for a CPU or a hypervisor had it. bench_limits
# measures how exact limits are.
# Usage: preload_limits.sh BUILD
set -u
build=$(readlink -f "$1")
work=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUSIM_DIR="$work/gpu" GPUSIM_MODE=share GPUARB_DIR="$work/arb" GPUARB_CONF=/dev/null
export LD_LIBRARY_PATH="$build/sim"
unset GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_LOG GPUARB_DISABLE
preload="$build/libgpuarb-preload.so"
runs=0
# Errors go to a file as well, because some come from the background.
say() {
	echo "limits: $*" | tee -a "$work/wrong" >&2
}

# Prints the seconds that a hypervisor has taken from this machine since it started, the sum of all processors.
stolen() {
	awk -v hz="$(getconf CLK_TCK)" '$1 == "cpu" { print $9 / hz }' /proc/stat
}

# load NAME LIMIT ARGUMENT...: runs it; its output is in NAME.out, its errors in NAME.err, the stolen time in
# NAME.stolen
load() {
	name=$1 limit=$2
	shift 2
	runs=$((runs + 1))
	stolen >"$work/$name.stolen"
	GPUARB_ACCOUNT=$name GPUARB_CORE_LIMIT=$limit LD_PRELOAD=$preload timeout 60 "$build/simload" "$@" \
		>"$work/$name.out" 2>"$work/$name.err"
	status=$?
	stolen >>"$work/$name.stolen"
	[ $status = 0 ] || say "$name: exit status $status"
	[ -s "$work/$name.err" ] && say "$name: it printed $(head -n 1 "$work/$name.err")"
	return 0
}

# Prints the seconds that it had of the GPU, that its launches took in all threads, that it ran, and that it was kept
# from a CPU.
seconds_of() {
	kept=0
	[ ! -s "$work/$1.stolen" ] || kept=$(awk 'NR == 1 { from = $1 } END { print $1 - from }' "$work/$1.stolen")
	sed -nE 's/.*"launched":([0-9]+),.*"starved_seconds":([0-9.]+),"launch_ns_mean":([0-9.]+),"kernel_seconds":([0-9.]+)\}.*"seconds":([0-9.]+)\}$/\4 \1 \3 \5 \2/p' \
		"$work/$1.out" | awk -v kept="$kept" '{print $1, $2 * $3 / 1e9, $4, $5 + kept}'
}

# Checks that it got no more than MOST percent of the GPU's time; and no less than a third of its limit, of the time
# in which it ran or its launches were held up. What it did not ask for because it was kept from a CPU does not count.
# It may have been billed for that time, and is then held up for longer.
between() { # NAME LIMIT MOST
	wrong=$(seconds_of "$1" | awk -v limit="$2" -v most="$3" '
		{ held = ($2 < $3 ? $2 : $3) - $4; if (held < 0) held = 0 }
		int($1 / $3 * 100 + 0.5) > most { printf "got %.1f %% of the time, not at most %d", $1 / $3 * 100, most }
		$1 + $4 < ($1 + $4 + held) * limit / 300 { printf "got only %.3f s, and was held up for %.3f s, but kept from a CPU for %.3f s", $1, held, $4 }
		END { if (!NR) printf "said nothing" }')
	[ -z "$wrong" ] || say "$1 $wrong"
}

# Checks that its bill is what it got, or at least not three times as much. Where the machine leaves it no CPU, it
# pays until it notices that its work has ended.
billed() { # NAME
	"$build/gpuarb-watchdog" --once >"$work/bills" || say "the segment is not in order: $(cat "$work/bills")"
	bill=$("$build/gpuarb-top" --history | sed -nE "s/.* $1 left; it had used ([0-9.]+)(u|m|)s .*/\1 \2/p" |
		awk '{ print $1 * ($2 == "u" ? 1e-6 : $2 == "m" ? 1e-3 : 1) }')
	wrong=$(seconds_of "$1" | awk -v bill="${bill:-0}" '$1 > bill * 1.25 || bill > $1 * 3 + $4 { printf "%.3f s", $1 }')
	[ -z "$wrong" ] || say "$1 got $wrong, and its bill is '$bill' s"
}

load short 25 -k 20 -d 3
between short 25 28
billed short
load long 25 -k 1000 -d 3
between long 25 28
billed long
load graphs 25 -k 20 -g 50 -d 2
between graphs 25 29
billed graphs
load streams 25 -k 50 -s 4 -t 2 -d 2
between streams 25 29
billed streams
load waits 25 -k 100 -p sync -d 2
between waits 25 28
billed waits
load polls 25 -k 100 -p sync -w poll -d 2
between polls 25 28
billed polls
load callbacks 25 -k 100 -p sync -w callback -d 2
between callbacks 25 28
billed callbacks
# It has no limit and never asks whether its work has ended. It must not be billed for its pauses nevertheless.
load forgets 100 -k 1000 -p burst -b 10:40 -w none -d 3
billed forgets
load scatters 100 -k 1000 -p burst -b 12:40 -w none -s 12 -d 3
billed scatters
export CUDA_LAUNCH_BLOCKING=1
load inside 25 -k 1000 -d 2
between inside 1 28
unset CUDA_LAUNCH_BLOCKING
load perthread 25 -k 50 -V ptsz --default-stream -d 2
between perthread 25 29
billed perthread
load copies 50 -k 50 -c 65536 -d 1

# Two run at once, and each gets its own limit.
load left 30 -k 50 -d 3 &
one=$!
load right 60 -k 50 -d 3
wait $one
between left 30 34
between right 60 65

# A program that is killed in the middle leaves the GPU to the other, whatever it had queued.
GPUARB_ACCOUNT=victim GPUARB_CORE_LIMIT=80 LD_PRELOAD=$preload "$build/simload" -k 50 -d 30 >/dev/null 2>&1 &
victim=$!
until "$build/gpuarb-top" --history --account victim 2>/dev/null | grep -q throttled; do sleep 0.1; done
kill -9 $victim
wait $victim 2>/dev/null
load survivor 80 -k 50 -d 2
between survivor 80 84
# The survivor has cleaned up already: nothing is left for the watchdog.
"$build/gpuarb-watchdog" --once --dir "$GPUARB_DIR" >"$work/cleaned" || say "the segment is not in order"
grep -q victim "$work/cleaned" && say "what the victim left was still there: $(cat "$work/cleaned")"

# A program ends as it would without the preload: at once, and with its own status.
runs=$((runs + 1))
GPUARB_CORE_LIMIT=10 LD_PRELOAD=$preload timeout 20 "$build/simload" -n 5 --library libnothing.so.1 >/dev/null 2>&1
with=$?
timeout 20 "$build/simload" -n 5 --library libnothing.so.1 >/dev/null 2>&1
without=$?
[ $with = $without ] || say "exit status $with instead of $without"

# told NAME LINES TEXT: it printed LINES lines, all of them by gpuarb, and one contains TEXT.
told() {
	[ "$(wc -l <"$work/$1.err")" = "$2" ] || say "$1: it printed $(wc -l <"$work/$1.err") lines, not $2"
	grep -qv '^gpuarb\[[0-9]*/[0-9]*\] [a-z]* preload: ' "$work/$1.err" && say "$1: $(cat "$work/$1.err")"
	[ -z "$3" ] || grep -q "$3" "$work/$1.err" || say "$1: not told: $3"
}

# Without a segment a limit is kept as if the program were alone; without a limit it runs freely. Either is logged
# once.
without() { # NAME ON_ERROR LIMIT ARGUMENT...
	name=$1 closed=$2 limit=$3
	shift 3
	runs=$((runs + 1))
	GPUARB_DIR=/proc/nothing GPUARB_ON_ERROR=$closed GPUARB_CORE_LIMIT=$limit LD_PRELOAD=$preload \
		timeout 30 "$build/simload" "$@" >"$work/$name.out" 2>"$work/$name.err"
	status=$?
}
without alone open 25 -k 50 -d 2 -t 2
[ $status = 0 ] || say "alone: exit status $status"
told alone 1 'as if it were alone'
between alone 25 29
without free open 100 -k 20 -n 2000 -t 4
[ $status = 0 ] || say "free: exit status $status"
told free 1 'without limits'
without closed closed 100 -k 20 -n 10
[ $status != 0 ] || say "closed: it ran"
grep -q '"error":800,"where":"cuCtxCreate' "$work/closed.out" || say "closed: $(cat "$work/closed.out")"
told closed 1 'on_error = closed'
GPUARB_LOG=off GPUARB_DIR=/proc/nothing LD_PRELOAD=$preload timeout 30 "$build/simload" -n 10 >/dev/null 2>"$work/off.err"
[ -s "$work/off.err" ] && say "GPUARB_LOG=off: it printed something"

# If its segment is removed, a program joins the new one. If it cannot, its limit holds all the same. At level info
# the first join is logged as well.
lost() { # NAME COMMAND
	name=$1
	runs=$((runs + 1))
	GPUARB_DIR="$work/$name" GPUARB_LOG=info GPUARB_ACCOUNT=$name GPUARB_CORE_LIMIT=25 LD_PRELOAD=$preload \
		timeout 60 "$build/simload" -k 50 -d 3 >"$work/$name.out" 2>"$work/$name.err" &
	loser=$!
	until grep -q joined "$work/$name.err" || ! kill -0 $loser 2>/dev/null; do sleep 0.1; done
	eval "$2" || say "$name: could not take the segment away"
	wait $loser || say "$name: exit status $?"
	between "$name" 25 32
}
# At this level it also logs that it has joined.
lost removed 'mv "$work/removed" "$work/gone" && rm -r "$work/gone"'
told removed 2 'joined the one there is now'
[ -n "$(ls "$work/removed/state")" ] || say "removed: no new segment"
# The path is changed in one step, so that the program cannot make a new segment in between.
mkdir "$work/open" && ln -s open "$work/barred" && ln -s /dev/null "$work/bar"
lost barred 'mv -T "$work/bar" "$work/barred" && rm -r "$work/open"'
told barred 2 'stays in the one it has'

[ ! -e "$work/wrong" ] || exit 1
echo "limits: $runs programs kept theirs, ended as they should, and said nothing"
