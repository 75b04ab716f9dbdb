#!/bin/sh
# Runs one build of the preload in an older and a newer Debian (glibc 2.31 and 2.41), each in a root that debootstrap
# makes: programs start with it, a limit holds, and the two share a segment.
# Usage: preload_userlands.sh BUILD ROOTS   (ROOTS: where the roots are kept)
set -u
build=$(readlink -f "$1")
top=$(readlink -f "$(dirname "$0")/../..")
roots=$2
if [ "$(id -u)" != 0 ]; then
	echo "userlands: skipped, because making a root needs root"
	exit 0
fi
mkdir -p "$roots"
roots=$(readlink -f "$roots")
work=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
bad=0
say() {
	echo "userlands: $*" >&2
	bad=$((bad + 1))
}
mounted=
clean() {
	for m in $mounted; do umount "$m"; done
	rm -rf "$work"
}
trap clean EXIT

# From MIRROR if it is set, otherwise from debootstrap's own choice.
make_root() { # SUITE PACKAGE,...
	root="$roots/$1"
	[ ! -e "$root/.complete" ] || return 0
	rm -rf "$root"
	if debootstrap --variant=minbase --include=python3-minimal,$2 "$1" "$root" ${MIRROR:+"$MIRROR"} >"$roots/$1.log" 2>&1; then
		: >"$root/.complete"
		return 0
	fi
	rm -rf "$root"
	return 1
}

# The library comes from this build; the simulated GPU and its load generator are built in that Debian.
put_in() { # SUITE
	root="$roots/$1"
	mkdir -p "$root/gpuarb" "$root/source" "$root/shared"
	cp "$build/libgpuarb-preload.so" "$root/gpuarb/"
	mount --bind "$top" "$root/source" && mounted="$root/source $mounted"
	chroot "$root" make -C /source -j2 BUILD=/gpuarb /gpuarb/simload /gpuarb/sim/libcuda.so.1 >"$roots/$1.log" 2>&1 ||
		say "$1: the simulated GPU cannot be built: $(tail -n 3 "$roots/$1.log")"
	mount --bind "$work" "$root/shared" && mounted="$root/shared $mounted"
	mount -t proc proc "$root/proc" && mounted="$root/proc $mounted"
}

inside() { # SUITE COMMAND...
	root="$roots/$1"
	shift
	chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin GPUSIM_DIR=/shared/gpu GPUSIM_MODE=share GPUARB_DIR=/shared/arb \
		GPUARB_CONF=/dev/null LD_LIBRARY_PATH=/gpuarb/sim LD_PRELOAD=/gpuarb/libgpuarb-preload.so "$@"
}

load() { # SUITE NAME LIMIT
	inside "$1" GPUARB_ACCOUNT="$2" GPUARB_CORE_LIMIT="$3" timeout 60 /gpuarb/simload -k 200 -d 3 \
		>"$work/$2.out" 2>"$work/$2.err" || say "$1: simload ended with $?: $(head -n 1 "$work/$2.err")"
	[ ! -s "$work/$2.err" ] || say "$1: it printed $(head -n 1 "$work/$2.err")"
	got=$(sed -E 's/.*"completed":([0-9]+).*"kernel_us":([0-9.]+).*"seconds":([0-9.]+)\}$/\1 \2 \3/' "$work/$2.out" |
		awk '{printf "%d", $1 * $2 / $3 / 10000 + 0.5}')
	[ -n "$got" ] && [ "$got" -ge 5 ] && [ "$got" -le $(($3 + 8)) ] || say "$1: $2 got $got %, not $3"
}

tried=
for suite in bullseye trixie; do
	if ! make_root $suite gcc,libc6-dev,make,perl-base; then
		echo "userlands: $suite skipped, it cannot be had here: $(tail -n 1 "$roots/$suite.log")"
		continue
	fi
	put_in $suite
	libc=$(inside $suite LD_PRELOAD= sh -c 'ldd --version 2>/dev/null | sed -n "1s/.* //p"')
	for command in 'echo hello' 'ls / >/dev/null' 'python3 -c "import ctypes; print(1)"'; do
		with=$(inside $suite sh -c "$command" 2>&1)
		without=$(inside $suite LD_PRELOAD= sh -c "$command" 2>&1)
		[ "$with" = "$without" ] || say "$suite: $command: $with"
	done
	load $suite "alone-$suite" 25
	tried="$tried $suite (glibc $libc)"
done
if [ -e "$roots/bullseye/.complete" ] && [ -e "$roots/trixie/.complete" ]; then
	load bullseye old 30 &
	old=$!
	load trixie new 40
	wait $old
	[ "$(ls "$work/arb/state" | wc -l)" = 1 ] || say "the two did not share a segment"
	"$build/gpuarb-watchdog" --once --quiet --dir "$work/arb" || say "the segment is not in order"
fi
[ "$bad" = 0 ] || exit 1
echo "userlands: one build, tried in:${tried:- none}"
