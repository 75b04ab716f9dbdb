#!/bin/sh
# Records the corpus anew: the first decisions of the first client in each case of bench_limits, bench_tracker and
# bench_device, in the world. A file whose trace has not changed is kept as it is. Usage: make.sh WORLD CORPUS
set -eu
world=$(readlink -f "$1")
corpus=$2
# Enough for the start of an interval, one or two windows, and what follows; the corpus stays below 1 MiB.
bytes=12000 seconds=0.3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$corpus"
for cases in shared '*-slices' tracker 'device-*'; do
	"$world" --cases "$cases" --seconds "$seconds" --json >"$work/cases" || :
	for name in $(sed -n 's/.*"case": "\([^"]*\)".*/\1/p' "$work/cases"); do
		# Whether a case reaches its targets in such a short time does not matter here.
		"$world" --case "$name" --seconds "$seconds" --bytes "$bytes" --record "$work/$name.trace" >/dev/null || :
		xz -dc "$corpus/$name.trace.xz" 2>/dev/null | cmp -s - "$work/$name.trace" ||
			xz -9e -c "$work/$name.trace" >"$corpus/$name.trace.xz"
		touch "$work/$name.trace.xz"
	done
done
for old in "$corpus"/*.trace.xz; do
	[ -e "$work/$(basename "$old")" ] || rm "$old"
done
echo "traces: $(find "$corpus" -name '*.xz' | wc -l) in $corpus, $(du -bc "$corpus"/*.xz | tail -n 1 | cut -f1) bytes"
