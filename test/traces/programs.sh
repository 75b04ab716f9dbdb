#!/bin/sh
# Programs on the simulated GPU record traces: each is replayed with the same decisions, and the recording does not
# disturb the program. Usage: programs.sh BUILD
set -u
build=$(readlink -f "$1")
work=$(mktemp -d /dev/shm/gpuarb-traces-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUSIM_DIR="$work/gpu" GPUARB_DIR="$work/arb" GPUARB_CONF=/dev/null
bad=0
say() {
	echo "traces: $*" >&2
	bad=$((bad + 1))
}
# run WANTED-STATUS OPTIONS MODE: runs the program and records it into $work/MODE
run() {
	# shellcheck disable=SC2086
	{ (cd "$work" && exec "$build/gpuarb-run" --sim --record "$3" $2 -- "$build/test/trace_program" "$3" 2>"$work/err"); } 2>/dev/null
	status=$?
	[ $status = "$1" ] || say "$3: exit status $status: $(cat "$work/err")"
}
# replays FILE WORDS: checks that all is decided the same and that the verdict has these words
replays() {
	verdict=$("$build/gpuarb-replay" --quiet "$work/$1") || say "$1: $verdict"
	case $verdict in
	*"$2"*) ;;
	*) say "$1: '$2' is not in: $verdict" ;;
	esac
}
files() { # PATTERN: how many
	find "$work" -maxdepth 1 -name "$1" | wc -l
}

for core in 100 30; do
	rm -f "$work/plain"*
	run 0 "--core $core" plain
	replays plain "until the program ended"
	[ "$(files 'plain*')" = 1 ] || say "plain: $(files 'plain*') files"
done
[ "$(stat -c %a "$work/plain")" = 600 ] || say "plain: others may read it"
"$build/gpuarb-replay" "$work/plain" >"$work/out" || say "plain: no lines"
for words in "a call asks to launch work" "entered the running set" "fence .* is behind 1 launch" "left the running set" \
	"the segment says: limit 30 percent" "tracker  "; do
	grep -q "$words" "$work/out" || say "plain: '$words' is in no line"
done
"$build/gpuarb-replay" --json "$work/plain" | python3 -c '
import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert lines[0]["program"] == "trace_program" and lines[0]["same_thresholds"], lines[0]
assert lines[-1]["same"] and lines[-1]["events"] == len(lines) - 2, lines[-1]
times = [line["s"] for line in lines[1:-1]]
assert all(line["who"] and line["words"] for line in lines[1:-1])
assert min(times) >= 0 and max(times) < 60
' || say "plain: the JSON is wrong"
"$build/gpuarb-replay" --quiet - <"$work/plain" >"$work/out" || say "plain: not from the standard input"

# A child that ends by itself has no trace and does not spoil its parent's; a child that works has its own.
run 0 "--core 60" forks
replays forks "until the program ended"
[ "$(files 'forks*')" = 1 ] || say "forks: $(files 'forks*') files"
run 0 "--core 60" children
replays children "until the program ended"
[ "$(files 'children.*')" = 1 ] || say "children: $(files 'children.*') files beside the first"
for f in "$work"/children.*; do
	replays "$(basename "$f")" "until the program ended"
done
run 0 "--core 60" closes
replays closes "until the program ended"
run 137 "--core 60" killed
replays killed "killed"
run 0 "--core 60" execs
replays execs ""
[ "$(files 'execs.*')" = 1 ] || say "execs: $(files 'execs.*') files beside the first"
replays "$(cd "$work" && echo execs.*)" "until the program ended"
run 0 "--core 60" bounded
replays bounded ""
grep -q "cannot be written any more (File too large): it ends here" "$work/err" || say "bounded: it said $(cat "$work/err")"
run 0 "--core 60" moves
replays moves "until the program ended"

# Two programs at once, by the variable: the second one has a file of its own, whichever that is.
both() {
	GPUARB_TRACE=$work/both "$build/gpuarb-run" --sim --core 40 -- "$build/test/trace_program" plain
}
both &
both &
wait
[ "$(files 'both*')" = 2 ] || say "both: $(files 'both*') files"
for f in "$work"/both*; do
	replays "$(basename "$f")" "until the program ended"
done

# No trace is made for a program that uses no GPU. If the path leads nowhere, that is logged once and the program goes
# on.
GPUARB_TRACE=$work/none "$build/gpuarb-run" --sim -- true || say "true fails"
[ "$(files none)" = 0 ] || say "a program that uses no GPU has a trace"
GPUARB_TRACE=/no/such/trace "$build/gpuarb-run" --sim -- "$build/test/trace_program" plain 2>"$work/err" ||
	say "without a trace the program fails"
[ "$(grep -c "the trace cannot be written to /no/such/trace (No such file or directory): nothing is recorded" "$work/err")" = 1 ] ||
	say "it is not said once that there is no trace: $(cat "$work/err")"

# gpuarb-run replaces only traces.
run 0 "" plain
replays plain "until the program ended"
[ "$(files 'plain*')" = 1 ] || say "an earlier trace was not replaced"
echo text >"$work/moves"
run 1 "" moves
[ "$(cat "$work/moves")" = text ] || say "a file that is no trace was overwritten"
"$build/gpuarb-replay" --quiet "$work/moves" >"$work/out" 2>&1
[ $? = 1 ] && grep -q "is no trace of gpuarb" "$work/out" || say "a text is taken for a trace: $(cat "$work/out")"

# The gate's decisions are logged as they are made, in the words of the trace, and at most fifty lines a second.
GPUARB_LOG=debug "$build/gpuarb-run" --sim --core 30 -- "$build/test/trace_program" plain 2>"$work/err" || say "debug: the program fails"
grep -q " debug preload: .*: a call asks to launch work: enter the running set \[out\]" "$work/err" || say "debug says nothing"
lines=$(grep -c " debug " "$work/err")
[ "$lines" -le 600 ] || say "debug says $lines lines"

# Bursts that the program does not wait for: the ends of some are estimated, which the segment counts and gpuarb-top
# shows.
"$build/gpuarb-run" --sim --account bursts -- "$build/simload" -k 20 -d 60 -p burst -b 200:3000 >/dev/null 2>&1 &
load=$!
tries=0
until "$build/gpuarb-top" --json 2>/dev/null | grep -q '"measured_percent": [1-9][0-9]*\.[0-9]*[1-9],'; do
	tries=$((tries + 1))
	[ $tries -le 100 ] || {
		say "nothing of unwaited bursts is estimated, or all of it"
		break
	}
	sleep 0.1
done
"$build/gpuarb-top" --explain bursts | grep -q "percent of its bill was measured by the GPU's events" ||
	say "gpuarb-top --explain does not say what was measured: $("$build/gpuarb-top" --explain bursts | head -n 5)"
kill "$load"
wait "$load" 2>/dev/null

[ "$bad" = 0 ] || exit 1
echo "traces: recorded by programs that fork, exec, close all, move and are killed; each is decided the same again"
