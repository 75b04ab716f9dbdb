#!/bin/bash
# progress.sh WHAT COMMAND...: runs the command and shows its output only if it fails. On a terminal one line shows
# its progress. WHAT is printed before; it may be empty.
set -u
what=$1
shift
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
[ -z "$what" ] || echo "$what"
"$@" >"$log" 2>&1 &
job=$!
trap 'kill $job 2>/dev/null; exit 130' INT TERM
if [ -t 1 ]; then
	while kill -0 $job 2>/dev/null; do
		printf '\r\033[K%3ss  %s' "$SECONDS" "$(tail -n 1 "$log" | cut -c 1-70)"
		sleep 0.2
	done
	printf '\r\033[K'
fi
wait $job
status=$?
if [ $status != 0 ]; then
	tail -n 30 "$log" >&2
	echo "${what:-$*}: failed with status $status; what it said last is above" >&2
fi
exit $status
