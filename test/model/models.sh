#!/bin/bash
# Checks the models in this folder with spin: models.sh DIRECTORY-FOR-THE-VERIFIERS
# One line per property: states, depth, errors. A "mutation" is a deliberate mistake that must be found.
set -u
here=$(cd "$(dirname "$0")" && pwd)

jobs() {
	local two="-DN=2" safe="-DSAFETY" live="-DNFAIR=3"
	local crash="-DN=2 -DCRASHES=1 -DTIMEOUTS" bill="-DNC=1 -DNE=1 -DOPS=2 -DEOPS=2"
	# To tear a copy, an evictor has to publish three times, and a second client has to be in the set.
	local torn="-DNC=2 -DNE=1 -DOPS1=0 -DEOPS=3 -DVMAX=1 -DRUNNING"
	# kind | name | model | macros of the model | macros of the verifier | arguments of the verifier
	cat <<-END
	holds|every waiter is served (slot 0), with a crash|handover|$crash -DLIVENESS|$live|-a -f -N served0
	holds|every waiter is served (slot 1), with a crash|handover|$crash -DLIVENESS|$live|-a -f -N served1
	holds|a dead holder's lease comes back|handover|$crash -DLIVENESS|$live|-a -f -N recovered
	holds|one holder, no torn record, with a crash|handover|$crash -DGIVEUPS=1 -DANYCHOICE|$safe|
	holds|no lost wake-up, 2 clients for ever|handover|$two -DGIVEUPS=2|$safe|
	holds|no lost wake-up, 3 clients, once each|handover|-DN=3 -DROUNDS=1|$safe|
	mutation|the woken one is told before the CAS|handover|$two -DMUT_WAKE_FIRST|$safe|
	mutation|the futex word is loaded after the decision|handover|$two -DMUT_WORD_LATE|$safe|
	mutation|a record is written into the head's buffer|handover|$two -DMUT_HEAD_BUFFER|$safe|
	mutation|who gives up keeps the reservation to itself|handover|$two -DGIVEUPS=1 -DMUT_GIVE_UP_SILENTLY|$safe|
	mutation|a reservation survives the end of a turn|handover|$two -DMUT_KEEP_RESERVATION|$safe|
	holds|the law: 1 client, an evictor, a crash|billing|$bill -DCRASHES=1|$safe|
	holds|the law: 2 clients, an evictor|billing|-DNC=2 -DNE=1 -DOPS=1 -DEOPS=1 -DVMAX=1|$safe|
	holds|the law: 1 client, 2 evictors|billing|-DNC=1 -DNE=2 -DOPS=2 -DEOPS=1 -DRUNNING|$safe|
	holds|the law: records torn under a client|billing|$torn -DOPS=1|$safe|
	holds|the law: records torn under a reclaimer|billing|$torn -DOPS=0 -DCRASHES=1|$safe|
	mutation|enter stores acc after the CAS|billing|-DNC=2 -DNE=1 -DOPS=1 -DEOPS=1 -DVMAX=1 -DMUT_ACC_AFTER|$safe|
	mutation|leave stores total after the CAS|billing|$bill -DMUT_TOTAL_AFTER|$safe|
	mutation|an evicted client enters without settling|billing|$bill -DMUT_NO_SETTLE|$safe|
	mutation|enter stores acc on the word of a torn record|billing|$torn -DOPS=1 -DMUT_ENTER_TORN|$safe|
	mutation|leave believes a torn record|billing|$torn -DOPS=1 -DMUT_LEAVE_TORN|$safe|
	mutation|leave settles nothing and calls it left|billing|$torn -DOPS=1 -DMUT_SETTLE_NOTHING|$safe|
	mutation|reclaim believes a torn record|billing|$torn -DOPS=0 -DCRASHES=1 -DMUT_DROP_TORN|$safe|
	holds|memory adds up: 2 members, a crash|account|-DOPS=1 -DCRASHES=1|$safe|
	holds|those below stop, and are woken: 1 below|above|-DROUNDS=3|$safe|
	holds|those below stop, and are woken: 2 below|above|-DLOWS=2 -DROUNDS=1|$safe|
	mutation|gates are closed before the CAS|above|-DMUT_CLOSE_FIRST|$safe|
	mutation|those below are woken before the CAS|above|-DMUT_RELEASE_FIRST|$safe|
	mutation|who has entered does not look at itself|above|-DMUT_NO_LOOK|$safe|
	mutation|a tick opens the gate and does not look|above|-DMUT_TICK_BLIND|$safe|
	mutation|a lease is shown after the look at the set|above|-DMUT_LEASE_LATE|$safe|
	mutation|the futex word is loaded after the decision|above|-DMUT_WORD_LATE|$safe|
	mutation|who registers does not look at leases again|above|-DMUT_LEASE_UNSEEN|$safe|
	mutation|the valid memory word is overwritten|account|-DMUT_SAME_WORD|$safe|
	mutation|detaching publishes from the slot's buffer|account|-DMUT_DETACH_FROM_SLOT|$safe|
	mutation|home is written without the directory's lock|account|-DMUT_NO_DIRECTORY|$safe|
	END
}

fail() {
	printf '%-52s FAILED: %s\n' "$name" "$1"
	touch "$dir/failed"
}

one() {
	local dir=$1 kind name model defs cc args work errors
	IFS='|' read -r kind name model defs cc args <<<"$2"
	work=$(mktemp -d "$dir/XXXXXX") || exit 1
	cd "$work" && cp "$here/$model.pml" . || exit 1
	# shellcheck disable=SC2086
	spin -a $defs "$model.pml" >spin.out 2>&1 &&
		${CC:-cc} -O1 -w -DCOLLAPSE -DMEMLIM=6000 -DVECTORSZ=1024 $cc -o pan pan.c >>spin.out 2>&1 ||
		{ fail "cannot be built, see $work/spin.out"; return; }
	# shellcheck disable=SC2086
	./pan -m4000000 $args >pan.out 2>&1
	errors=$(sed -n 's/.*errors: //p' pan.out)
	if [ -z "$errors" ] || grep -qE 'max search depth too small|out of memory|hashtable full' pan.out; then
		fail "the search was cut short, see $work/pan.out"
	elif [ "$kind" = holds ] && { [ "$errors" != 0 ] || grep -q 'Search not completed' pan.out; }; then
		fail "$(sed -n 's/^pan:1: //p' pan.out | cut -c1-100), trail in $work"
	elif [ "$kind" = mutation ] && [ "$errors" = 0 ]; then
		fail "this mistake was not seen"
	else
		printf '%-52s %9d states, depth %6d, errors %s%s\n' "$name" \
			"$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.out)" \
			"$(sed -n 's/.*depth reached \([0-9]*\),.*/\1/p' pan.out)" "$errors" \
			"$([ "$kind" = mutation ] && echo ' (mutation seen)')"
		rm -rf "$work"
	fi
}

if [ "${1:-}" = --one ]; then
	one "$2" "$3"
	exit 0
fi
[ $# = 1 ] || { echo "usage: models.sh DIRECTORY" >&2; exit 2; }
rm -rf "$1" && mkdir -p "$1" || exit 1
dir=$(cd "$1" && pwd)
jobs | xargs -d '\n' -P 2 -n 1 bash "$here/models.sh" --one "$dir"
if [ -e "$dir/failed" ]; then
	echo "check-model: failed"
	exit 1
fi
