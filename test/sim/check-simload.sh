#!/bin/sh
# Runs every kind of load: the ground truth must count what simload says it completed.
# usage: check-simload.sh BUILD
set -eu

build=$1
dir=$(mktemp -d /dev/shm/simload-XXXXXX)
trap 'rm -rf "$dir"' EXIT INT TERM
export GPUSIM_DIR="$dir" GPUSIM_COST=0 LD_LIBRARY_PATH="$build/sim"

# Prints the last number of that name in a line of JSON: the sums stand behind their parts.
last() {
	sed -n "s/.*\"$1\":\\([0-9]*\\).*/\\1/p"
}

# Prints the first number of that name: the device's figures stand before those of its processes.
first() {
	sed -n "s/[^\"]*\"devices\":\\[{//; s/\"processes\".*//; s/.*\"$1\":\\([0-9]*\\).*/\\1/p"
}

check() {
	"$build/sim/gpusim-report" --reset >/dev/null
	said=$(timeout 60 "$build/simload" --duration=0.2 "$@" | last completed)
	report=$("$build/sim/gpusim-report" --json)
	counted=$(echo "$report" | first launches)
	if [ "$said" -lt 1 ] || [ "$said" != "$counted" ]; then
		echo "simload $*: $said completed, $counted in the ground truth" >&2
		exit 1
	fi
}

for variant in plain ex coop ptsz dependent; do
	check --kernel-us=50 --variant="$variant" --pattern=sync
done
for wait in sync event poll callback; do
	check --kernel-us=50 --pattern=sync --every=3 --wait="$wait" --threads=2
done
check --kernel-us=20
check --kernel-us=200 --pattern=burst --burst=20:20
check --kernel-us=50 --pattern=random --random-us=300
check --kernel-us=50 --pattern=open --rate=2000
check --kernel-us=50 --streams=4 --threads=2 --processes=3
check --kernel-us=30 --graph=10 --streams=2 --pattern=sync
check --kernel-us=50 --copy=65536 --copy-every=2 --pattern=sync --wait=event
check --kernel-us=50 --memory=100 --managed --processes=2
check --kernel-us=50 --default-stream --pattern=sync
check --launches=100 --kernel-us=10
check --kernel-us=20 --functions=7 --threads=2
check --kernel-us=2 --host-us=4
check --kernel-us=50 --streams=4 --priorities
CUDA_DEVICE_MAX_CONNECTIONS=1 check --kernel-us=50 --streams=4 --pattern=sync
check --kernel-us=100 --width=40 --processes=2
check --kernel-us=100 --ranks=3
check --kernel-us=500 --ranks=2 --pattern=sync
check --kernel-us=50 --held=host:100
check --kernel-us=50 --held=value:100 --pattern=sync

# Launches each function once: loading takes at least 20 x 10 ms in all, and no time on the device.
"$build/sim/gpusim-report" --reset >/dev/null
took=$(GPUSIM_LAZY_US=10000 timeout 60 "$build/simload" --functions=20 --kernel-us=100 |
	sed -n 's/.*"completed":20,"seconds":\([0-9]*\)\.\([0-9]*\).*/\1\2/p')
busy=$("$build/sim/gpusim-report" --json | first busy_ns)
if [ "${took:-0}" -lt 200000 ] || [ "$busy" != 2000000 ]; then
	echo "simload --functions=20: ${took:-not all} us, $busy ns on the device" >&2
	exit 1
fi

# Launch-bound: the CPU time before each launch bounds their number, so that the device is idle in between.
"$build/sim/gpusim-report" --reset >/dev/null
said=$("$build/simload" --kernel-us=2 --host-us=10 --duration=0.2 | last completed)
if [ "$said" -lt 1 ] || [ "$said" -gt 20001 ]; then
	echo "simload --host-us=10: $said launches in 0.2 s" >&2
	exit 1
fi

"$build/simload" --duration=0.1 --memory=100000 >/dev/null 2>&1 && { echo "simload hides an error" >&2; exit 1; }
echo "simload: what it completes is what the ground truth counts"
