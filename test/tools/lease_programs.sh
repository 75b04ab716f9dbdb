#!/bin/sh
# Leases of whole programs on the simulated GPU: with the preload and without, linked with the shared and the static
# library, and by gpuarb-run --class. Usage: lease_programs.sh BUILD
set -u
build=$(readlink -f "$1")
work=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
holder=
load=
trap 'kill $holder $load 2>/dev/null; rm -rf "$work"' EXIT
export GPUSIM_DIR="$work/gpu" GPUARB_DIR="$work/arb" GPUARB_CONF="$work/conf"
unset GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_LOG GPUARB_DISABLE GPUARB_GPU LD_PRELOAD
cat >"$GPUARB_CONF" <<X
usage_sample_ms = 50
[class asr]
priority = 90
under_pressure = pass
[class nmt]
priority = 80
max_wait_ms = 30
[class repair]
priority = 10
mode = skip
X
bad=0
say() {
	echo "leases: $*" >&2
	bad=$((bad + 1))
}

# The program is one client, however it got the library.
preload="$build/libgpuarb-preload.so"
for linked in shared static; do
	program="$build/test/preload/lease-$linked"
	for mode in lease context; do
		for with in "" "$preload"; do
			rm -rf "$GPUARB_DIR" "$GPUSIM_DIR"
			LD_LIBRARY_PATH="$build:$build/sim" LD_PRELOAD=$with timeout 90 "$program" $mode ||
				say "$linked, $mode first, preload '${with##*/}': it failed"
		done
	done
done
rm -rf "$GPUARB_DIR" "$GPUSIM_DIR"
LD_LIBRARY_PATH="$build:$build/test/preload/hang:$build/sim" timeout 90 "$build/test/preload/lease-shared" hang ||
	say "an NVML that hangs was waited for"

# gpuarb-run --class. run ARGUMENT...; the exit status is in $status, the output in $work/out.
rm -rf "$GPUARB_DIR" "$GPUSIM_DIR"
run() {
	timeout 60 "$build/gpuarb-run" --sim "$@" >"$work/out" 2>&1
	status=$?
}
expect() { # STATUS TEXT ARGUMENT...
	wanted=$1 text=$2
	shift 2
	run "$@"
	[ $status = "$wanted" ] || say "$*: exit status $status instead of $wanted: $(cat "$work/out")"
	[ -z "$text" ] || grep -q -- "$text" "$work/out" || say "$*: '$text' is not in: $(cat "$work/out")"
}
gpu() { # NAME: a value of the GPU out of gpuarb-top --json
	"$build/gpuarb-top" --json --once 2>/dev/null | grep -m 1 "\"$1\"" | sed -E 's/.*: "?([^",]*)"?,?$/\1/'
}
until_is() { # NAME VALUE
	tries=0
	while [ "$(gpu "$1")" != "$2" ]; do
		tries=$((tries + 1))
		[ $tries -lt 600 ] || { say "$1 is $(gpu "$1") and does not become $2"; return; }
		sleep 0.05
	done
}

expect 0 ran --class repair -- echo ran
expect 7 "" --class asr -- sh -c 'exit 7'
expect 0 'GPU-.* 200' --class asr -- sh -c 'echo $GPUARB_GPU $(cd /proc/self/fd; ls | grep 200)'
echo "env -u LD_PRELOAD $build/gpuarb-top --json" >"$work/task.sh"
expect 0 '"command": "sh task.sh"' --class asr -- sh "$work/task.sh" s3cret
expect 127 'cannot run' --class asr -- no-such-program
expect 1 "no task class 'nonsense'" --class nonsense -- true
expect 2 'is not a time' --class asr --max-wait 5x -- true
expect 2 'allowed are skip' --class asr --or nothing -- true
expect 2 'which command' --class asr --or fallback -- true
expect 2 'belong to --class' --max-wait 5 -- true

# The lease lasts as long as one process of the tree lives, without a process of gpuarb that holds it.
"$build/gpuarb-run" --sim --class asr -- sh -c 'sleep 60 & echo $!' >"$work/pid"
holder=$(cat "$work/pid")
[ "$(gpu leases)" = 1 ] || say "$(gpu leases) leases for one tree"
"$build/gpuarb-watchdog" --once >/dev/null
[ "$(gpu leases)" = 1 ] || say "the lease of a living tree was taken"
kill "$holder"
while kill -0 "$holder" 2>/dev/null; do sleep 0.01; done
holder=
"$build/gpuarb-watchdog" --once >/dev/null
[ "$(gpu leases)" = 0 ] || say "the lease of a dead tree is left"
# Nobody can tell how its last process ended; most end by themselves. Nor does a program die for which there is no class.
died=$("$build/gpuarb-top" --history | grep -E 'died|evicted')
[ -z "$died" ] || say "programs that ended are said to have died: $died"
[ "$(gpu slots_reclaimed)" = 0 ] || say "$(gpu slots_reclaimed) are said to have died"

# There is pressure: a client has load, above the water line.
"$build/gpuarb-set" high_water=1 low_water=0
LD_LIBRARY_PATH="$build/sim" LD_PRELOAD=$preload "$build/simload" -k 1000 -d 100 >/dev/null 2>&1 &
load=$!
until_is gpu_admission_state HIGH_PRESSURE
expect 80 'SKIP (GPU_USAGE_HIGH' --class repair -- echo ran
expect 80 '' --class repair --or skip -- echo ran
[ -s "$work/out" ] && say "--or skip is not quiet: $(cat "$work/out")"
expect 81 'TIMEOUT (GPU_USAGE_HIGH' --class nmt -- echo ran
expect 81 'TIMEOUT' --class nmt --max-wait 0 -- echo ran
expect 80 '' --class nmt --max-wait 10ms --or skip -- echo ran
expect 5 'fell back' --class nmt --max-wait 10ms --or fallback 'echo fell back $LD_PRELOAD; exit 5' -- echo ran
grep -q libgpuarb "$work/out" && say "the fallback has the preload: $(cat "$work/out")"
expect 0 ran --class asr -- echo ran
"$build/gpuarb-set" --class nmt under_pressure=pass
expect 0 ran --class nmt -- echo ran
"$build/gpuarb-set" --class nmt under_pressure=
# A program that waits goes when the pressure ends.
"$build/gpuarb-run" --sim --class nmt --max-wait 60s -- echo waited >"$work/waited" 2>&1 &
waiter=$!
until_is gpu_queue_len 1
"$build/gpuarb-set" high_water=85 low_water=78
kill $load
load=
wait $waiter || say "the one that waited ended with $?: $(cat "$work/waited")"
grep -q waited "$work/waited" || say "the one that waited did not run: $(cat "$work/waited")"
"$build/gpuarb-set" --show | grep -q 'class nmt: priority=80 mode=queue max_wait_ms=30' ||
	say "--show does not show the class: $("$build/gpuarb-set" --show | grep class)"

[ $bad = 0 ] || exit 1
echo "leases: one client however it comes about; programs wait, fall back, and hold their lease as a tree"
