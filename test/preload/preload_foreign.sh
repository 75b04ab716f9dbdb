#!/bin/sh
# Programs for another architecture with limits, in emulation, alone and beside a native program on the same segment.
# The bounds are wide: the emulator is slow. Usage: preload_foreign.sh NATIVE-BUILD FOREIGN-BUILD EMULATOR...
set -u
native=$(readlink -f "$1")
foreign=$(readlink -f "$2")
shift 2
work=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
say() {
	echo "foreign: $*" >&2
	bad=$((bad + 1))
}

# The library path is set for the emulated program only: the emulator itself must not load these libraries.
foreign_load() { # NAME LIMIT ARGUMENT...
	name=$1 limit=$2
	shift 2
	timeout 120 $emulator -E GPUSIM_DIR="$work/gpu" -E GPUSIM_MODE=share -E GPUARB_DIR="$work/arb" -E GPUARB_CONF=/dev/null \
		-E GPUARB_ACCOUNT="$name" -E GPUARB_CORE_LIMIT="$limit" -E LD_LIBRARY_PATH="$foreign/sim" \
		-E LD_PRELOAD="$foreign/libgpuarb-preload.so" "$foreign/simload" "$@" >"$work/$name.out" 2>"$work/$name.err"
}
native_load() { # NAME LIMIT ARGUMENT...
	name=$1 limit=$2
	shift 2
	GPUSIM_DIR="$work/gpu" GPUSIM_MODE=share GPUARB_DIR="$work/arb" GPUARB_CONF=/dev/null GPUARB_ACCOUNT="$name" \
		GPUARB_CORE_LIMIT="$limit" LD_LIBRARY_PATH="$native/sim" LD_PRELOAD="$native/libgpuarb-preload.so" \
		timeout 120 "$native/simload" "$@" >"$work/$name.out" 2>"$work/$name.err"
}
emulator="$*"

between() { # NAME LEAST MOST
	got=$(sed -E 's/.*"completed":([0-9]+).*"kernel_us":([0-9.]+).*"seconds":([0-9.]+)\}$/\1 \2 \3/' "$work/$1.out" |
		awk '{printf "%d", $1 * $2 / $3 / 10000 + 0.5}')
	[ -n "$got" ] && [ "$got" -ge "$2" ] && [ "$got" -le "$3" ] || say "$1 got $got %, not $2 to $3"
	[ ! -s "$work/$1.err" ] || say "$1: it printed $(head -n 1 "$work/$1.err")"
}

foreign_load alone 30 -k 500 -d 2 || say "alone: exit status $?"
between alone 5 36
foreign_load graphs 30 -k 100 -g 20 -d 2 || say "graphs: exit status $?"
between graphs 3 40
foreign_load waits 30 -k 500 -p sync -d 2 || say "waits: exit status $?"
between waits 2 36
foreign_load left 30 -k 500 -d 3 -m 64 &
left=$!
native_load right 40 -k 500 -d 3 || say "right: exit status $?"
wait $left || say "left: exit status $?"
between left 3 40
between right 10 48
if [ "$(ls "$work/arb/state" | wc -l)" != 1 ]; then
	say "they did not share a segment"
fi
"$native/gpuarb-watchdog" --once --quiet --dir "$work/arb" || say "the segment is not in order"

[ "$bad" = 0 ] || exit 1
echo "foreign: limits hold in emulation, and beside a native program over the same segment"
