#!/bin/sh
# thresholds.sh WORLD: what gets worse in the world with each threshold of the tracking core four times larger and smaller:
# how many cases fail, the largest error in points, the latest end in us, seeds that fail. SECONDS_EACH (4): for each case.
# shellcheck disable=SC2086 # what measure prints are four words
set -u
world=$1
each=${SECONDS_EACH:-4}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT INT TERM

# measure [--threshold NAME=F]: "failed error late"
measure() {
	"$world" "$@" --cases all --seconds "$each" --json >"$work/cases" 2>/dev/null
	"$world" "$@" --cases 'device-*' --seconds "$each" >"$work/device" 2>/dev/null
	"$world" "$@" --cases tracker --seconds "$each" >"$work/tracker" 2>/dev/null
	failed=$(grep -c '"failed": true' "$work/cases")
	failed=$((failed + $(grep -c FAILED "$work/device") + $(grep -c FAILED "$work/tracker")))
	error=$(sed -n 's/^ *"error": \([0-9.e-]*\),/\1/p' "$work/cases" | sort -g | tail -n 1)
	total=$(sed -n 's/^ *"error": \([0-9.e-]*\),/\1/p' "$work/cases" | awk '{ s += $1 } END { printf "%.2f", s }')
	late=$(sed -n 's/.* \([0-9.]*\) us (nine of ten.*/\1/p' "$work/tracker" | sort -g | tail -n 1)
	echo "$failed ${error:-?} ${total:-?} ${late:-?}"
}

printf '%-22s %-6s %8s %14s %14s %12s\n' threshold factor failed "largest error" "sum of errors" "latest end"
base=$(measure)
printf '%-22s %-6s %8s %14.3f %14s %9s us\n' "(as it is)" 1 $base
"$world" --threshold list | cut -f 1 | while read -r name; do
	for factor in 4 0.25; do
		got=$(measure --threshold "$name=$factor")
		[ "$got" = "$base" ] && same="   changes nothing" || same=
		printf '%-22s %-6s %8s %14.3f %14s %9s us%s\n' "$name" "$factor" $got "$same"
	done
done
