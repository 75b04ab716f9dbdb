#!/bin/sh
# thresholds.sh WORLD: prints what gets worse if a threshold of the tracking core is four times as large or as small.
#
#   failed   cases that miss their bounds
#   error    sum over all clients of the points between target and attained share (percent of a rate, where that is the goal)
#   bills    sum over all clients of the points between attained and billed share
#   ends     the latest of the P90s of how late ends are noticed, where a sleep costs a thread 5 us and 25 us, in us
#   tracker  sum of what the tracker spends in those cases, in percent of a core
#   P99      sum of the P99s of requests beside a client of a lower priority, in us
#   kept     what that client keeps of the rest of the GPU, on average, in percent
#
# Three seeds of the present values come first: a difference that is not larger than theirs is chance. "changes nothing"
# is said only where every printed line of every case is the same. SECONDS_EACH (1): for each case. ONLY: names of
# thresholds, by default all. FACTORS ("4 0.25").
# shellcheck disable=SC2086 # what measure prints are several words
set -u
world=$1
each=${SECONDS_EACH:-1}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Every kind of client and device once. The other cases differ from these only in the device's slice, the policy or the
# length of kernels.
measure() {
	for cases in shared '*-slices' 'request-*-slices1930' '[13]0*-slices10-unkind' 'device-*' 'jobs-2-*-30*' 'latency-one-*[0-9][um]s'; do
		"$world" "$@" --cases "$cases" --seconds "$each"
	done >"$work/lines" 2>/dev/null
	for us in 5 25; do
		"$world" "$@" --cases tracker --wake-us $us
	done >>"$work/lines" 2>/dev/null
	# How fast this machine is stands in some lines.
	sed 's/ x[0-9.]* */ /' "$work/lines" >"$work/same"
	cksum <"$work/same" >"$work/sum"
	awk '
		function gap(a, b) { return a > b ? a - b : b - a }
		function after(word) { return match($0, word " *[0-9.-]+") ? substr($0, RSTART + length(word), RLENGTH - length(word)) + 0 : "" }
		/FAILED/ { failed++ }
		# These two miss their goals whatever the thresholds are, and by so much that no other error would be seen.
		/^# *device-(ranks-40.neighbour|spatial-30)/ { next }
		/^#.*target/ {
			t = after("target"); a = after("attained"); b = after("billed")
			if (/kernels a second|[0-9] s,/) error += t > 0 ? 100 * gap(a, t) / t : 0
			else { error += t > 0 ? gap(a, t) : 0; bills += gap(b, a) }
		}
		/nine of ten/ { us = after("\\(median\\),"); ends = us > ends ? us : ends; tracker += after("tracker") }
		/^latency.* (concurrent|lease) / { p99 += after("P99"); kept += after("keeps"); n++ }
		END { printf "%d %.1f %.1f %.0f %.2f %.0f %.2f\n", failed, error, bills, ends, tracker, p99, n ? kept / n : 0 }
	' "$work/lines"
}

row() {
	printf '%-22s %6s %6s %7s %7s %7s %8s %7s %7s%s\n' "$@"
}

row threshold factor failed error bills ends tracker P99 kept ''
for seed in 3 2 1; do
	got=$(measure --seed $seed)
	row "(as it is)" "seed $seed" $got ''
done
cp "$work/sum" "$work/base"
for name in ${ONLY:-$("$world" --threshold list | cut -f 1)}; do
	for factor in ${FACTORS:-4 0.25}; do
		got=$(measure --threshold "$name=$factor")
		cmp -s "$work/sum" "$work/base" && same="   changes nothing" || same=
		row "$name" "$factor" $got "$same"
	done
done
