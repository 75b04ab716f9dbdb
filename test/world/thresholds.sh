#!/bin/sh
# thresholds.sh WORLD: what gets worse in the world with each threshold of the tracking core four times larger and smaller:
# how many cases fail, the largest error in points, the sum of errors, the latest end in us, the sum of the P99 of requests
# beside somebody of a lower priority in us, and what that one keeps in percent, on average. SECONDS_EACH (4): for each case.
# ONLY: names of thresholds, by default all.
# shellcheck disable=SC2086 # what measure prints are six words
set -u
world=$1
each=${SECONDS_EACH:-4}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# measure [--threshold NAME=F]: "failed error sum late P99 kept"
measure() {
	"$world" "$@" --cases all --seconds "$each" --json >"$work/cases" 2>/dev/null
	"$world" "$@" --cases 'device-*' --seconds "$each" >"$work/device" 2>/dev/null
	"$world" "$@" --cases tracker --seconds "$each" >"$work/tracker" 2>/dev/null
	"$world" "$@" --cases 'latency-*' --seconds "$each" >"$work/latency" 2>/dev/null
	"$world" "$@" --cases 'jobs-*' --seconds "$each" >"$work/jobs" 2>/dev/null
	failed=$(grep -c '"failed": true' "$work/cases")
	failed=$((failed + $(cat "$work/device" "$work/tracker" "$work/latency" "$work/jobs" | grep -c FAILED)))
	error=$(sed -n 's/^ *"error": \([0-9.e-]*\),/\1/p' "$work/cases" | sort -g | tail -n 1)
	total=$(sed -n 's/^ *"error": \([0-9.e-]*\),/\1/p' "$work/cases" | awk '{ s += $1 } END { printf "%.2f", s }')
	late=$(sed -n 's/.* \([0-9.]*\) us (nine of ten.*/\1/p' "$work/tracker" | sort -g | tail -n 1)
	beside=$(sed -n '/^latency-equal/d; / \(concurrent\|lease\) /s/.* P99 *\([0-9.]*\).* keeps *\([0-9.]*\) %.*/\1 \2/p' "$work/latency" |
		awk '{ p += $1; k += $2 } END { printf "%.0f %.2f", p, NR ? k / NR : 0 }')
	echo "$failed ${error:-?} ${total:-?} ${late:-?} $beside"
}

printf '%-22s %-6s %8s %14s %14s %12s %10s %8s\n' threshold factor failed "largest error" "sum of errors" "latest end" \
	"sum of P99" kept
base=$(measure)
printf '%-22s %-6s %8s %14.3f %14s %9s us %10s %8s\n' "(as it is)" 1 $base
for name in ${ONLY:-$("$world" --threshold list | cut -f 1)}; do
	for factor in 4 0.25; do
		got=$(measure --threshold "$name=$factor")
		[ "$got" = "$base" ] && same="   changes nothing" || same=
		printf '%-22s %-6s %8s %14.3f %14s %9s us %10s %8s%s\n' "$name" "$factor" $got "$same"
	done
done
