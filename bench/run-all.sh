#!/bin/sh
# Runs the benchmarks that are named on the command line and says which results are beyond their allowance.
set -u
bad=0
for b in "$@"; do
	"$b" || bad=$((bad + 1))
	echo
done
if [ "$bad" = 0 ]; then
	echo "Every result is within its allowance."
else
	echo "$bad benchmark(s) have results beyond their allowance." >&2
	exit 1
fi
