#!/bin/sh
# Instances of a GPU (MIG) are GPUs of their own: listed, joined, limited, shown, by their UUID.
# Usage: mig.sh BUILD
set -eu
build=$(cd "$1" && pwd)
dir=$(mktemp -d /dev/shm/gpuarb-mig-XXXXXX)
running='' p=''
trap 'for p in $running; do kill -9 "$p" 2>/dev/null || :; done; rm -rf "$dir"' EXIT
fail() {
	echo "mig: $*" >&2
	exit 1
}

# The UUIDs of instances changed with CUDA 13: both forms are tried.
for kind in 1 13; do
	export GPUSIM_MIG=$kind GPUSIM_DEVICES=2 GPUSIM_DIR="$dir/sim$kind" GPUARB_DIR="$dir/gpuarb$kind" LD_LIBRARY_PATH="$build/sim"
	mkdir -p "$GPUARB_DIR"
	"$build/simload" --kernel-us=100 --duration=0.1 >/dev/null
	second=MIG-$("$build/sim/gpusim-report" --json | grep -o 'GPU-[0-9a-f-]*' | sed -n 2p | cut -c5-)
	[ ${#second} = 40 ] || fail "no second instance: $second"

	"$build/gpuarb-run" --gpu "$second" --account tenant --core 25 --mem 2Gi -- "$build/simload" --kernel-us=200 --duration=100 >"$dir/said" 2>&1 &
	running=$!
	until "$build/gpuarb-top" --json --once 2>/dev/null | grep -q '"limit_percent": 25.0'; do
		kill -0 "$running" 2>/dev/null || fail "it does not run: $(cat "$dir/said")"
		sleep 0.1
	done
	"$build/gpuarb-top" --json --once >"$dir/top"
	grep -q "\"uuid\": \"$second\"" "$dir/top" || fail "gpuarb-top does not show $second: $(grep uuid "$dir/top")"
	grep -q '"index": "0:1"' "$dir/top" || fail "it has another number: $(grep index "$dir/top")"
	grep -q '"limit_percent": 25.0' "$dir/top" || fail "it has another limit: $(grep limit_percent "$dir/top")"
	grep -q "\"quota_bytes\": $((2 << 30))" "$dir/top" || fail "it has another quota: $(grep quota "$dir/top")"
	[ "$(ls "$GPUARB_DIR/state")" = "$second" ] || fail "other segments: $(ls "$GPUARB_DIR/state")"
	"$build/gpuarb-set" --gpu "$second" --account tenant core=50 >/dev/null || fail "gpuarb-set does not know it"
	# It never gets more than its limit, and it gets its limit as soon as the machine has a processor for it.
	tries=0
	while :; do
		"$build/sim/gpusim-report" --json --reset >/dev/null
		sleep 1.5
		"$build/sim/gpusim-report" --json >"$dir/truth"
		share=$(perl -ne 'my @e = /"elapsed_ns":(\d+)/g; my @b = /"busy_ns":(\d+)/g;
			printf "%d %d", 100 * $b[0] / $e[0], 100 * $b[1] / $e[1]' "$dir/truth")
		# shellcheck disable=SC2086
		set -- $share
		[ "$1" -eq 0 ] || fail "the first instance was busy for $1 percent"
		[ "$2" -le 54 ] || fail "limited to 50 percent, the second was busy for $2"
		[ "$2" -lt 45 ] || break
		kill -0 "$running" 2>/dev/null || fail "it ended: $(cat "$dir/said")"
		tries=$((tries + 1))
		[ $tries -lt 20 ] || fail "limited to 50 percent, the second was never busy for more than $2"
	done
	kill -9 "$running"
	wait "$running" 2>/dev/null || :
	running=
	LD_PRELOAD="$build/libgpuarb-preload.so" GPUARB_ACCOUNT=both "$build/simload" --kernel-us=100 --duration=0.2 --device=0 >/dev/null ||
		fail "the first instance cannot be used"
	[ "$(find "$GPUARB_DIR/state" -name 'MIG-*' | wc -l)" = 2 ] || fail "segments: $(ls "$GPUARB_DIR/state")"
done
echo "mig: two instances listed, joined, limited and shown by their UUIDs, with drivers before and since CUDA 13"
