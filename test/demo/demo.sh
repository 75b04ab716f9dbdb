#!/bin/bash
# Runs the demo on a terminal: gpuarb-top has the screen while it lasts, the table comes at the end, and nothing
# remains, not even after an interruption. (`make demo` itself shows the demo without a terminal.)
# Usage: demo.sh BUILD
set -u
build=$(readlink -f "$1")
command -v tmux >/dev/null || { echo "demo: skipped: there is no tmux here"; exit 77; }
work=$(mktemp -d) || exit 1
# A tmux server that was told to end is there for a moment longer, so each round has a server of its own.
round=1
tmux() { command tmux -L "gpuarb-demo-$$-$round" -f /dev/null "$@"; }
trap 'tmux kill-server 2>/dev/null; rm -rf "$work"' EXIT
bad=0
say() {
	echo "demo: $*" >&2
	bad=$((bad + 1))
}
screen() { tmux capture-pane -p 2>/dev/null; }
await() { # SECONDS PATTERN
	until=$((SECONDS + $1))
	until screen | grep -qE -- "$2"; do
		[ $SECONDS -lt $until ] || { say "in vain: $2; the screen: $(screen | grep . | tail -n 5)"; return 1; }
		sleep 0.1
	done
}
# Finds the directory of the demo that runs in the pane, by the environment of its programs.
directory() {
	p=$(tmux display -p '#{pane_pid}')
	for _ in 1 2 3; do
		for c in $(cat "/proc/$p/task/$p/children" 2>/dev/null); do
			tr '\0' '\n' <"/proc/$c/environ" 2>/dev/null | sed -n 's/^GPUARB_DIR=//p'
			p=$c
		done
	done | grep gpuarb-demo | head -n 1
}
export LC_ALL=C.UTF-8

start() { tmux new-session -d -x 110 -y 40 "$build/demo $build; echo \"ended with \$?\"; sleep 100"; }
start || { echo "demo: skipped: tmux does not start here"; exit 77; }
await 30 'Three unmodified programs'
await 30 '^ACCOUNT +LIMIT'
await 30 '^doomed +25'
dir=$(directory)
[ -d "$dir" ] || say "it has no directory ('$dir')"
await 60 'ended with'
screen >"$work/end"
for line in 'gpuarb-set --account web core=50' 'doomed is killed: kill -9' '^web +50 +[0-9.]+ +[+-]' '^batch +20 ' \
	'^doomed +25 .*a neighbour freed its slot after' 'law: bills ([0-9.]+) s = busy' 'ended with 0'; do
	grep -qE -- "$line" "$work/end" || say "at the end there is no '$line': $(grep . "$work/end" | tail -n 8)"
done
tmux kill-server
[ -e "$dir" ] && say "$dir is left"

round=2
start
await 30 'Three unmodified programs'
await 30 '^ACCOUNT +LIMIT'
dir=$(directory)
[ -d "$dir" ] || say "it has no directory ('$dir')"
tmux send-keys q
sleep 1
tmux send-keys C-c
await 20 'interrupted; everything that it started has been ended'
await 20 'ended with 1'
[ -e "$dir" ] && say "$dir is left after the interruption"

[ "$bad" = 0 ] || exit 1
echo "demo: on a terminal it shows gpuarb-top, ends with its table, and leaves nothing behind"
