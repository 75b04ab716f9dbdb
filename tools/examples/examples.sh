#!/usr/bin/env bash
# Builds and runs every example on the simulated GPU. Usage: examples.sh BUILD
set -u
build=$(readlink -f "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d /dev/shm/gpuarb-examples-XXXXXX)
trap 'rm -rf "$work"' EXIT
export GPUARB_DIR=$work/segments GPUARB_CONF=$work/arbiter.conf GPUSIM_DIR=$work/sim
export PATH=$build:$PATH LD_LIBRARY_PATH=$build:$build/sim PYTHONPATH=$here/../python GPUARB_LIBRARY=$build/libgpuarb.so.1
mkdir -p "$GPUARB_DIR" "$GPUSIM_DIR"
cat >"$GPUARB_CONF" <<'END'
usage_sample_ms = 60000
cache_ttl_ms = 600000
[class asr]
priority = 90
max_wait_ms = 20000
under_pressure = pass
[class repair]
priority = 10
mode = skip
END
bad=0
say() {
	echo "examples: $*" >&2
	bad=1
}

gpuarb-node >"$work/node" 2>&1 || say "gpuarb-node: $(cat "$work/node")"
${CC:-cc} -Wall -Wextra -Werror -I"$here/../../include" -o "$work/lease" "$here/lease.c" -L"$build" -lgpuarb ||
	say "lease.c does not compile"
header=$(sed -n 's/^#define GPUARB_VERSION "\(.*\)"/\1/p' "$here/../../include/gpuarb.h")
loaded=$(python3 -c 'import gpuarb; print(gpuarb.version())')
[ -n "$header" ] && [ "$header" = "$loaded" ] || say "gpuarb.h is of release '$header', the library of '$loaded'"
for run in "$work/lease" "python3 $here/lease.py"; do
	$run asr >"$work/out" 2>&1 && grep -q '^ran after' "$work/out" || say "$run asr: $(cat "$work/out")"
	$run nonsense >"$work/out" 2>&1
	{ [ $? = 1 ] && grep -q "nonsense" "$work/out"; } || say "$run nonsense: $(cat "$work/out")"
done
# While a task of a higher class has the GPU, a task of a class that skips does not wait.
gpuarb-run --class asr -- sh -c 'echo; exec sleep 20' >"$work/held" &
holder=$!
for _ in $(seq 200); do
	[ -s "$work/held" ] && break
	sleep 0.1
done
gpuarb-set --class repair under_pressure=pass >/dev/null 2>&1
for run in "$work/lease" "python3 $here/lease.py"; do
	$run repair >"$work/out" 2>&1
	case $? in
	0 | 3) ;;
	*) say "$run repair: $(cat "$work/out")" ;;
	esac
done
kill $holder 2>/dev/null
wait $holder 2>/dev/null

"$here/two-jobs.sh" "simload --duration 6 --kernel-us 500" "simload --duration 6 --kernel-us 500" >"$work/out" 2>&1 ||
	say "two-jobs.sh: $(cat "$work/out")"
grep -q 'Limit: 40 percent' "$work/out" || say "two-jobs.sh did not raise the limit: $(cat "$work/out")"

[ $bad = 0 ] || exit 1
echo "examples: lease.c, lease.py and two-jobs.sh do what they say"
