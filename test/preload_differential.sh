#!/bin/sh
# The same programs with and without the preload, on the simulated driver behind one that writes down each
# call: the same output, the same exit status, the same calls with the same results in the same order.
# Usage: preload_differential.sh BUILD PRELOAD [acts]   (acts: under a limit; it then makes calls of its own)
set -u
build=$(readlink -f "$1")
preload=$(readlink -f "$2")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUSIM_DIR="$work/gpu" GPUSIM_SEED=1 GPUSIM_COST=0
export FORWARD_DRIVER="$build/sim/libcuda.so.1"
acts=${3:-}
[ -z "$acts" ] || export GPUARB_DIR="$work/arb" GPUARB_CORE_LIMIT=50 GPUARB_ACCOUNT=differential
bad=0
runs=0
calls=0

# What depends on the time or the process is not compared.
plain() {
	sed -E 's/"(pid|seconds|launch_ns_mean|kernel_seconds)":[0-9.e+-]+/"\1":0/g' "$1"
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
	if [ -z "$acts" ] && ! cmp -s "$work/without.calls" "$work/with.calls"; then
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
	# More than there is, a device that there is not, a kernel that breaks the context.
	same $load -m 1000000
	same $load -D 7
	same $load --kernel gpusim_fault -p sync -K 1
	# Which call meets the error of an earlier one depends on when it is made.
	[ -n "$acts" ] || same $load --kernel gpusim_fault -p sync -K 2
done
same "$build/simload" -n 1 --library libnothing.so.1
if [ "$calls" -lt 1000 ]; then
	echo "preload: only $calls calls were written down" >&2
	bad=$((bad + 1))
fi
[ "$bad" = 0 ] || exit 1
echo "preload: $runs programs do the same with and without it: $calls calls"
