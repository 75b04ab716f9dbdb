#!/bin/bash
# An upgrade while clients run. A later release with the same layout shares the segment with this one. If the layout
# of the next version differs, each version works with its own segment, refuses the other's with a sentence that names
# both, and leaves it unchanged.
# Usage: upgrade.sh BUILD NEXT LATER   (NEXT: built with another layout version; LATER: with another release's
# version)
set -u
cd "$(dirname "$0")/../.." || exit 1
old=$(readlink -f "$1") new=$(readlink -f "$2") later=$(readlink -f "$3")
what=upgrade
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
# shellcheck disable=SC2317,SC2329
finish() {
	for process in ${client:-} ${second:-}; do kill -KILL "$process"; done 2>/dev/null
	wait 2>/dev/null
	rm -rf "$shm"
}
trap finish EXIT
export GPUARB_DIR="$shm/arb" GPUARB_CONF=/dev/null GPUSIM_DIR="$shm/gpu" GPUSIM_MODE=share
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_LOG
gpu=GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0
load() { # VERSION'S-DIRECTORY LIMIT ARGUMENT...
	local from=$1 limit=$2
	shift 2
	LD_LIBRARY_PATH="$old/sim" GPUARB_CORE_LIMIT=$limit LD_PRELOAD="$from/libgpuarb-preload.so" "$old/simload" --kernel-us=50 "$@"
}
other="has layout version 3, this gpuarb has version 1000"

# A client of this version runs; then the installed version is replaced by the next one. It is not started by load(),
# because the process itself has to be killed below.
LD_LIBRARY_PATH="$old/sim" GPUARB_ACCOUNT=running GPUARB_CORE_LIMIT=30 LD_PRELOAD="$old/libgpuarb-preload.so" "$old/simload" --kernel-us=50 \
	--duration=60 >"$shm/out" 2>"$shm/err" &
client=$!
for _ in $(seq 100); do
	"$old/gpuarb-top" --json 2>/dev/null | grep -q '"name": "running"' && break
	sleep 0.1
done
used() { # ACCOUNT
	"$old/gpuarb-top" --json | sed -nE "/\"name\": \"$1\"/,/\"used_ns\"/s/.*\"used_ns\": ([0-9]+).*/\1/p" | head -n 1
}

# A later release joins the segment that this one has made: each sees, bills and limits the other's clients.
cmp -s "$old/libgpuarb-preload.so" "$later/libgpuarb-preload.so" && say "the later release is this one"
[ "$("$later/gpuarb-set" --version)" = "gpuarb-set 9.9" ] || say "the later release is $("$later/gpuarb-set" --version)"
LD_LIBRARY_PATH="$old/sim" GPUARB_ACCOUNT=later GPUARB_CORE_LIMIT=30 LD_PRELOAD="$later/libgpuarb-preload.so" "$old/simload" --kernel-us=50 \
	--duration=60 >/dev/null 2>"$shm/later.err" &
second=$!
both() { [ "$(used running)" -gt "$1" ] && [ "$(used later)" -gt "$2" ]; } 2>/dev/null
until_true 20 both 0 0 || say "they do not run together: $(cat "$shm/later.err")"
until_true 20 both $(($(used running) + 200000000)) $(($(used later) + 200000000)) || say "they do not go on together"
"$later/gpuarb-set" --gpu $gpu --account running core=25 || say "the later gpuarb-set cannot change a limit"
"$old/gpuarb-set" --gpu $gpu --account later core=20 || say "a limit of the later client cannot be changed"
for version in "$old" "$later"; do
	"$version/gpuarb-set" --gpu $gpu --show >"$shm/said"
	for limit in "account running: core=25" "account later: core=20"; do
		grep -q "$limit" "$shm/said" || say "$version does not show: $limit"
	done
done
until_true 20 both $(($(used running) + 200000000)) $(($(used later) + 200000000)) || say "they do not go on under new limits"
{ kill -KILL $second; wait $second; } 2>/dev/null
second=
"$old/gpuarb-watchdog" --once >"$shm/said" 2>&1 || say "together they have broken the segment: $(cat "$shm/said")"
[ ! -s "$shm/later.err" ] || say "the later client is told: $(cat "$shm/later.err")"

before=$(used running)
cp "$GPUARB_DIR/control/$gpu" "$shm/control"

refuses() { # WHAT COMMAND...: with the sentence, and a status of 1
	local what=$1 status
	shift
	"$@" >"$shm/said" 2>&1
	status=$?
	grep -q "$other" "$shm/said" || say "$what is told: $(head -n 3 "$shm/said")"
	[ $status = 1 ] || say "$what ends with status $status"
}
refuses "gpuarb-set of the next version" "$new/gpuarb-set" --gpu $gpu --account running core=90
refuses "gpuarb-watchdog of the next version" "$new/gpuarb-watchdog" --once
refuses "gpuarb-node of the next version" "$new/gpuarb-node" --gpu $gpu --replace
grep -q 'still in use' "$shm/said" || say "gpuarb-node --replace does not say that the segment is in use: $(cat "$shm/said")"
# A program of the next version runs, says why it has no limits, and disturbs no other.
GPUARB_ACCOUNT=newer load "$new" 30 --launches=200 >"$shm/said" 2>&1 || say "a program of the next version fails: $(cat "$shm/said")"
grep -q "$other" "$shm/said" || say "a program of the next version is told: $(cat "$shm/said")"
# With on_error = closed it does not run without its limits.
GPUARB_ON_ERROR=closed GPUARB_ACCOUNT=newer load "$new" 30 --launches=200 >"$shm/said" 2>&1 && say "with on_error = closed it runs all the same"
cmp -s "$shm/control" "$GPUARB_DIR/control/$gpu" || say "the next version has written into the control segment"
"$old/gpuarb-watchdog" --once >"$shm/said" 2>&1 || say "the segment is not in order any more: $(cat "$shm/said")"
[ ! -s "$shm/said" ] || say "the watchdog had to clean up: $(cat "$shm/said")"
goes_on() { [ "$(used running)" -gt "$1" ]; }
until_true 20 goes_on "$before" || say "the running client stands still ($before ns, $(used running) ns)"
[ ! -s "$shm/err" ] || say "the running client is told: $(cat "$shm/err")"

# The old client ends, and the next version takes over.
{ kill -KILL $client; wait $client; } 2>/dev/null
client=
"$new/gpuarb-node" --gpu $gpu --replace >"$shm/said" 2>&1 || say "the next version cannot take over: $(cat "$shm/said")"
GPUARB_ACCOUNT=newer load "$new" 30 --launches=200 >"$shm/said" 2>"$shm/err" || say "a program of the next version fails: $(cat "$shm/err")"
[ ! -s "$shm/err" ] || say "a program of the next version on its own segment is told: $(cat "$shm/err")"

# In the other direction: an old library in a container meets the next version's segment.
other="has layout version 1000, this gpuarb has version 3"
cp "$GPUARB_DIR/state/$gpu" "$shm/state"
refuses "gpuarb-set of the old version" "$old/gpuarb-set" --gpu $gpu --account newer core=90
refuses "gpuarb-watchdog of the old version" "$old/gpuarb-watchdog" --once
GPUARB_ACCOUNT=older load "$old" 30 --launches=200 >"$shm/said" 2>&1 || say "a program of the old version fails: $(cat "$shm/said")"
grep -q "$other" "$shm/said" || say "a program of the old version is told: $(cat "$shm/said")"
cmp -s "$shm/state" "$GPUARB_DIR/state/$gpu" || say "the old version has written into the next one's segment"

# What no version can use is replaced, whatever it is, and programs join what is there then.
for kind in cut fifo link folder full; do
	rm -rf "$GPUARB_DIR/state/$gpu" "$GPUARB_DIR/control/$gpu"
	"$old/gpuarb-node" --gpu $gpu >/dev/null 2>&1 || say "gpuarb-node fails"
	[ $kind = cut ] || rm "$GPUARB_DIR/state/$gpu"
	case $kind in
	cut) truncate -s 100 "$GPUARB_DIR/state/$gpu" ;;
	fifo) mkfifo "$GPUARB_DIR/state/$gpu" ;;
	link) ln -s /dev/null "$GPUARB_DIR/state/$gpu" ;;
	folder) mkdir "$GPUARB_DIR/state/$gpu" ;;
	full) mkdir -p "$GPUARB_DIR/state/$gpu/full" ;;
	esac
	"$old/gpuarb-node" --gpu $gpu --replace >"$shm/said" 2>&1 || say "--replace does not mend '$kind': $(cat "$shm/said")"
	GPUARB_ACCOUNT=mended load "$old" 30 --launches=20 >/dev/null 2>"$shm/err" || say "after '$kind' a program fails: $(cat "$shm/err")"
	[ ! -s "$shm/err" ] || say "after '$kind' a program is told: $(cat "$shm/err")"
done

[ "$bad" = 0 ] || exit 1
echo "upgrade: clients go on, one layout is shared, of two each version refuses the other's segments and leaves them as they are"
