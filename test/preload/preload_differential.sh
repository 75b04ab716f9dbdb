#!/bin/sh
# Runs the same programs with and without the preload, on the simulated driver behind a driver that writes down each
# call. Output, exit status, and the calls with their results and order must be the same.
# Usage: preload_differential.sh BUILD PRELOAD [acts]
# acts: with a limit. Then the preload makes calls of its own in between, of the kinds named below and no others.
set -u
build=$(readlink -f "$1")
preload=$(readlink -f "$2")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUSIM_DIR="$work/gpu" GPUSIM_SEED=1 GPUSIM_COST=0
export FORWARD_DRIVER="$build/sim/libcuda.so.1"
acts=${3:-}
[ -z "$acts" ] || export GPUARB_DIR="$work/arb" GPUARB_CORE_LIMIT=50 GPUARB_ACCOUNT=differential \
	GPUARB_ALTERNATION=off
bad=0
runs=0
calls=0

# Removes what depends on the time or the process.
plain() {
	sed -E 's/"(pid|seconds|starved_seconds|launch_ns_mean|kernel_seconds)":[0-9.e+-]+/"\1":0/g' "$1"
}

# The calls that the acting layer may make for itself.
own='cuCtxGetCurrent cuCtxGetDevice cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuDeviceGetName cuDeviceGetUuid cuDeviceGetUuid_v2
	cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventElapsedTime_v2 cuEventQuery cuEventRecord
	cuEventRecord_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz cuStreamQuery cuStreamQuery_ptsz
	cuThreadExchangeStreamCaptureMode cuDeviceTotalMem_v2 cuStreamCreateWithPriority cuStreamGetPriority cuStreamWaitEvent cuLaunchHostFunc'

# Checks that the program's calls are all there in their order, and that all others are the preload's.
within() { # without with
	awk -v own="$own" 'BEGIN { at = n = 0; split(own, names); for (i in names) ours[names[i]] = 1 }
		NR == FNR { want[n++] = $0; next }
		at < n && $0 == want[at] { at++; next }
		!($1 in ours) { print "a call that is not the program'"'"'s: " $0; bad = 1; exit 1 }
		END { if (!bad && at < n) { print "missing, or out of order: " want[at]; exit 1 } }' "$1" "$2"
}

once() { # name preload command...
	name=$1 with=$2
	shift 2
	: >"$work/$name.calls"
	FORWARD_LOG="$work/$name.calls" LD_LIBRARY_PATH="$build/test/preload/forward:$build/sim" LD_PRELOAD="$with" \
		timeout 30 "$@" >"$work/$name.raw" 2>&1
	echo "exit status $?" >>"$work/$name.raw"
	plain "$work/$name.raw" >"$work/$name.out"
}

same() {
	runs=$((runs + 1))
	once without "" "$@"
	once with "$preload" "$@"
	if ! cmp -s "$work/without.out" "$work/with.out"; then
		bad=$((bad + 1))
		echo "preload: another output: $*" >&2
		diff "$work/without.out" "$work/with.out" | head -n 6 >&2
	fi
	if [ -n "$acts" ]; then
		if ! within "$work/without.calls" "$work/with.calls" >"$work/why"; then
			bad=$((bad + 1))
			echo "preload: other calls: $*: $(cat "$work/why")" >&2
		fi
	elif ! cmp -s "$work/without.calls" "$work/with.calls"; then
		bad=$((bad + 1))
		echo "preload: other calls: $*" >&2
		diff "$work/without.calls" "$work/with.calls" | head -n 6 >&2
	fi
	calls=$((calls + $(wc -l <"$work/with.calls")))
}

for program in simload simload-linked; do
	load="$build/$program -n 60 -k 20"
	for wait in sync event callback none; do
		same $load -p sync -K 5 -w $wait
	done
	for variant in plain ex coop ptsz; do
		same $load -V $variant
	done
	same $load -s 3
	same $load --default-stream
	same $load -g 4
	same $load -c 65536 --copy-every 3
	same $load -m 64
	same $load -m 64 --managed
	# More memory than there is, a device that does not exist, a kernel that breaks the context.
	same $load -m 1000000
	same $load -D 7
	same $load --kernel gpusim_fault -p sync -K 1
	# Which call reports the error of an earlier one depends on when it is made.
	[ -n "$acts" ] || same $load --kernel gpusim_fault -p sync -K 2
done
same "$build/simload" -n 1 --library libnothing.so.1

# The simulator's own tests know what is right. Some are about what a GPU does to processes that it serves one after
# the other; the arbiter must not prevent that (alternation is off).
for t in memory graph errors module ipc procaddr; do
	runs=$((runs + 1))
	GPUARB_CORE_LIMIT=100 LD_LIBRARY_PATH="$build/sim" LD_PRELOAD=$preload \
		timeout 120 "$build/sim/test_$t" -j1 --timeout 60 >"$work/test.out" 2>&1 || {
		bad=$((bad + 1))
		echo "preload: the simulator's test_$t fails with it:" >&2
		grep -v '^\[----\]' "$work/test.out" | tail -n 5 >&2
	}
done

# A program that is not ours, if it is installed.
if command -v ffmpeg >/dev/null && ffmpeg -hide_banner -filters 2>/dev/null | grep -q scale_cuda; then
	same ffmpeg -v error -init_hw_device cuda=cu:0 -filter_hw_device cu -f lavfi -i testsrc2=duration=1:size=320x180:rate=30 \
		-vf format=nv12,hwupload_cuda,scale_cuda=160:90,hwdownload,format=nv12 -f md5 -
fi
if [ "$calls" -lt 1000 ]; then
	echo "preload: only $calls calls were written down" >&2
	bad=$((bad + 1))
fi
[ "$bad" = 0 ] || exit 1
echo "preload: $runs programs do the same with and without it: $calls calls"
