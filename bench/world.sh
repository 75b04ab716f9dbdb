#!/bin/sh
# Measures the accuracy of limits in virtual time (test/world), for the figures in the README. BUILD: the build
# directory. SECONDS_EACH: virtual seconds for each case (20). bench_limits runs the same cases in real time.
set -u
world=${BUILD:-build}/world
each=${SECONDS_EACH:-20}
echo "# limits: points of the GPU that each client is off, in virtual time (build/world, seed 1, $each s each), not on this"
echo "# machine's clock: first on a quiet machine, then on one whose host takes its time away"
table() {
	out=$("$world" --cases all --seconds "$each" "$@")
	status=$?
	printf '%s\n' "$out" | grep -v '^#'
	return $status
}
table && table --robbed
