#!/bin/bash
# Measures what bench/shares.gp draws: the share of the (simulated) GPU that each of three jobs gets over time, by the
# GPU's own books; once without an arbiter and once with gpuarb. "batch" has three processes, like a training job with
# three workers. After 4 s web is to get 50 instead of 30 percent, after 8 s doomed is killed.
#
#   plot-shares.sh BUILD DATA
set -u
build=$(readlink -f "$1")
data=$2
seconds=12
step_ms=100
work=$(mktemp -d /dev/shm/gpuarb-plots-XXXXXX) || exit 1
pids=()
finish() {
	[ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_LIMITS_FILE
export GPUARB_DIR=$work/arb GPUSIM_DIR=$work/gpu GPUARB_CONF=/dev/null LD_LIBRARY_PATH=$build/sim
export PATH=$build:$PATH
for job in web batch doomed; do ln -s "$build/simload" "$work/$job"; done

# Prints the device time of each job so far, and the GPU's clock, in ns.
books() {
	"$build/sim/gpusim-report" --json | tr '{' '\n' | awk -F'[:,]' '
		/"now_ns"/ {for (i = 1; i < NF; i++) if ($i == "\"now_ns\"") now = $(i + 1)}
		/"pid"/ {
			for (i = 1; i < NF; i++) {
				if ($i == "\"command\"") name = $(i + 1)
				if ($i == "\"device_ns\"") got[name] += $(i + 1)
			}
		}
		END {printf "%.0f %.0f %.0f %.0f\n", now, got["\"web\""], got["\"batch\""], got["\"doomed\""]}'
}

start() { # JOB LIMIT PROCESSES
	if [ "$how" = gpuarb ]; then
		gpuarb-run --account "$1" --core "$2" -- "$work/$1" -k 200 -d 60 -P "$3" >/dev/null 2>&1 &
	else
		"$work/$1" -k 200 -d 60 -P "$3" >/dev/null 2>&1 &
	fi
	pids+=($!)
	[ "$1" = doomed ] && doomed=$!
}

run() { # how
	how=$1
	pids=()
	mkdir -p "$GPUSIM_DIR"
	start web 30 1
	start batch 20 3
	start doomed 25 1
	# Waits until all jobs work.
	for _ in {1..200}; do
		read -r _ a b c < <(books 2>/dev/null)
		[ "${a:-0}" -gt 0 ] && [ "${b:-0}" -gt 0 ] && [ "${c:-0}" -gt 0 ] && break
		sleep 0.05
	done
	sleep 1
	read -r t0 w0 b0 d0 < <(books)
	began=$t0
	n=$((seconds * 1000 / step_ms))
	for ((i = 1; i <= n; i++)); do
		[ -t 2 ] && printf '\r%s: %3d %%' "$how" $((100 * i / n)) >&2
		[ $((i * step_ms)) = 4000 ] && [ "$how" = gpuarb ] && gpuarb-set --account web core=50
		if [ $((i * step_ms)) = 8000 ]; then
			{ kill -9 "$doomed" && wait "$doomed"; } 2>/dev/null
		fi
		read -r now _ < <(books)
		wait_ms=$(((began + i * step_ms * 1000000 - now) / 1000000))
		[ $wait_ms -gt 0 ] && sleep "$(printf '0.%03d' $wait_ms)"
		read -r t w b d < <(books)
		awk -v how="$how" -v at=$(((t + t0) / 2 - began)) -v dt=$((t - t0)) -v w=$((w - w0)) -v b=$((b - b0)) -v d=$((d - d0)) \
			'BEGIN {printf "%s %.3f %.2f %.2f %.2f\n", how, at / 1e9, 100 * w / dt, 100 * b / dt, 100 * d / dt}'
		t0=$t w0=$w b0=$b d0=$d
	done
	[ -t 2 ] && printf '\r\033[K' >&2
	kill -9 "${pids[@]}" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$GPUSIM_DIR" "$GPUARB_DIR"
}

{
	echo "# $(nproc) cores, $(uname -sr), commit $(git -C "$(dirname "$0")" describe --always 2>/dev/null)"
	echo "# who seconds web batch doomed (percent of the GPU's time)"
	run none
	run gpuarb
} >"$data.new" || exit 1
[ "$(grep -c '^gpuarb ' "$data.new")" -gt 0 ] || { echo "plots: nothing was measured" >&2; exit 1; }
mv "$data.new" "$data"
