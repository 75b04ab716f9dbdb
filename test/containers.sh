#!/bin/bash
# Two containers share one GPU. They have PID, mount and user namespaces of their own and share only the two
# directories of the segments, `control` read-only. Limits hold, an administrator on the host changes one, a killed
# container is noticed, and the viewer on the host names both.
#
#   containers.sh BUILD [podman]
#
# Without podman the namespaces are made by unshare. Where they are forbidden it says so and ends with 77.
set -u
build=$(readlink -f "$1")
engine=${2:-plain}
ids=("$(printf 'a%.0s' {1..64})" "$(printf 'b%.0s' {1..64})")
work=$(mktemp -d /dev/shm/gpuarb-containers-XXXXXX) || exit 1
chmod 755 "$work"
bad=0
pids=()
say() {
	echo "containers: $*" >&2
	bad=$((bad + 1))
}
finish() {
	for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
	[ "$engine" = podman ] && podman rm -f "gpuarb-test-$$-0" "gpuarb-test-$$-1" >/dev/null 2>&1
	wait 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT
skip() {
	echo "containers: skipped: $*"
	exit 77
}
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_LOG GPUARB_DISABLE CUDA_VISIBLE_DEVICES
export GPUARB_CONF=/dev/null GPUSIM_MODE=share
host() { GPUARB_DIR="$work/arb" GPUSIM_DIR="$work/gpu" LD_LIBRARY_PATH="$build/sim" "$@"; }

# Makes the segments, as an administrator does once; containers may only join.
mkdir "$work/gpu"
GPUARB_SEGMENT_MODE=0666 host "$build/gpuarb-node" >"$work/node" || say "gpuarb-node: exit status $?"

# The inside of a plain container. Its root is the machine's, except for /dev/shm, which has only the two directories;
# for /proc; and for a file that a container engine would have mounted, by whose path the container is known. The
# simulated GPU stands for a device node. All mounts are below the private copy of the root. Runs the rest of its
# arguments, or ends with 77.
cat >"$work/inside" <<'INSIDE'
work=$1 id=$2
shift 2
root=$work/root
{
	mount --make-private /dev/shm && mkdir -p "$root" && mount --rbind / "$root" && mount --make-rprivate "$root" &&
	mount -t tmpfs tmpfs "$root/dev/shm" && mount -t proc proc "$root/proc" &&
	mkdir -p "$root"/dev/shm/gpuarb/state "$root"/dev/shm/gpuarb/control "$root/dev/shm/gpu" &&
	mount --bind "$work/arb/state" "$root/dev/shm/gpuarb/state" &&
	mount --bind "$work/arb/control" "$root/dev/shm/gpuarb/control" &&
	mount -o remount,bind,ro "$root/dev/shm/gpuarb/control" && mount --bind "$work/gpu" "$root/dev/shm/gpu" &&
	mount --bind "$work/$id/hostname" "$root/etc/hostname"
} 2>/dev/null || exit 77
exec chroot "$root" "$@"
INSIDE
for id in "${ids[@]}"; do
	mkdir "$work/$id"
	echo inside >"$work/$id/hostname"
done
[ -e /etc/hostname ] || [ "$engine" = podman ] || skip "there is no /etc/hostname to mount over"

# It gets a user namespace as well, where that is permitted; in a chroot it is not, not even for root.
own=(--user --map-root-user)
unshare "${own[@]}" true 2>/dev/null || own=()

# plain N COMMAND...: runs it in the namespaces of container N
plain() {
	n=$1
	shift
	env GPUARB_DIR=/dev/shm/gpuarb GPUSIM_DIR=/dev/shm/gpu LD_LIBRARY_PATH="$build/sim" \
		unshare "${own[@]}" --pid --fork --kill-child --mount --propagation unchanged --ipc --uts \
		bash "$work/inside" "$work" "${ids[$n]}" "$@"
}

# A root directory with only what the programs need.
podman_root() {
	root=$work/root
	mkdir -p "$root"/{bin,lib64,tmp,proc,sys,dev,etc,usr/lib/gpuarb}
	cp "$build/simload" "$build/gpuarb-set" /bin/sh "$root/bin/"
	for f in "$build/simload" "$build/gpuarb-set" /bin/sh "$build"/sim/libcuda.so.1 "$build/libgpuarb-preload.so"; do
		ldd "$f" | grep -oE '/[^ ]+\.so[^ ]*' | grep -v "^$build"
	done | sort -u | while read -r lib; do
		mkdir -p "$root$(dirname "$lib")"
		cp -L "$lib" "$root$lib"
	done
}
podman() { command podman --runtime runc "$@"; }
# gpuarb-run's own flags are used, divided at spaces as a shell does.
# shellcheck disable=SC2046
in_podman() {
	n=$1
	shift
	podman run --rm --name "gpuarb-test-$$-$n" --network none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
		$(host "$build/gpuarb-run" --print-container-flags) \
		-v "$build/sim:/sim:ro" -v "$work/gpu:/gpu:rw" -e LD_LIBRARY_PATH=/sim -e GPUSIM_DIR=/gpu \
		-e GPUSIM_MODE=share -e GPUARB_CORE_LIMIT="${limit:-100}" --rootfs "$work/root" "$@"
}

# start N LIMIT SECONDS: runs a load in container N
start() {
	if [ "$engine" = podman ]; then
		limit=$2 in_podman "$1" /bin/simload -k 200 -d "$3" >"$work/out$1" 2>"$work/err$1" &
	else
		GPUARB_ACCOUNT=@container GPUARB_CORE_LIMIT=$2 plain "$1" \
			env LD_PRELOAD="$build/libgpuarb-preload.so" "$build/simload" -k 200 -d "$3" \
			>"$work/out$1" 2>"$work/err$1" &
	fi
	pids[$1]=$!
}

json() { host "$build/gpuarb-top" --json 2>>"$work/top"; }
# await SECONDS WHAT COMMAND...: waits until the command succeeds
await() {
	until=$((SECONDS + $1)) what=$2
	shift 2
	while ! "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $until ] || { say "in vain: $what"; return 1; }
		sleep 0.05
	done
}
count() { json | grep -c "$1"; }
both_are_there() { [ "$(count '"container": "')" = 2 ]; }
one_is_there() { [ "$(count '"container": "')" = 1 ]; }
limit_is() { json | grep -q "\"limit_percent\": $1.0,"; }
reclaimed() { json | sed -nE 's/.*"slots_reclaimed": ([0-9]+),.*/\1/p'; }
some_reclaimed() { [ "$(reclaimed)" -gt "$1" ]; }
# within N LIMIT: checks that a load got no more than its limit and a window of the GPU; and at least half of it, not
# counting the time in which its threads waited for a CPU.
within() {
	got=$(sed -E 's/.*"completed":([0-9]+).*"starved_seconds":([0-9.]+).*"kernel_us":([0-9.]+).*"seconds":([0-9.]+)\}$/\1 \3 \4 \2/' "$work/out$1" |
		awk '{printf "%d %d", $1 * $2 / $3 / 10000 + 0.5, ($1 * $2 / 1e6 + $4) / $3 * 100}')
	[ -n "$got" ] && [ "${got% *}" -le $(($2 + 4)) ] && [ "${got#* }" -ge $(($2 / 2)) ] ||
		say "limit $2: got ${got% *} % of the time, and wanted to run for ${got#* } %"
}
# Ends a load that is not needed any more.
end() {
	kill -9 "$(inner "$1")"
	wait "${pids[$1]}" 2>/dev/null
}
# Prints the host's pid of a process inside: the deepest descendant.
deepest() {
	p=$1
	while c=$(cat "/proc/$p/task/$p/children" 2>/dev/null) && [ -n "$c" ]; do p=${c%% *}; done
	echo "$p"
}
inner() {
	if [ "$engine" = podman ]; then podman inspect -f '{{.State.Pid}}' "gpuarb-test-$$-$1"; else deepest "${pids[$1]}"; fi
}

if [ "$engine" = podman ]; then
	command -v podman >/dev/null || skip "there is no podman here"
	podman_root
	in_podman 0 /bin/sh -c : >"$work/try" 2>&1 || skip "podman runs no container here: $(head -n 1 "$work/try")"
else
	plain 0 true 2>/dev/null || skip "PID and mount namespaces are not permitted here"
fi

# Both run at once, each with its own limit.
start 0 50 200
start 1 20 200
await 30 "both join" both_are_there
host "$build/gpuarb-top" --once --processes -i 500 --width 200 >"$work/seen" 2>&1 || say "gpuarb-top: $(tail -n 1 "$work/seen")"
if [ "$engine" = podman ]; then
	ids=("$(podman inspect -f '{{.Id}}' "gpuarb-test-$$-0")" "$(podman inspect -f '{{.Id}}' "gpuarb-test-$$-1")")
fi
for id in "${ids[@]}"; do
	json | grep -q "\"container\": \"${id:0:63}" || say "the viewer does not name container ${id:0:12}"
	grep -q "${id:0:12}" "$work/seen" || say "the viewer's table does not name container ${id:0:12}: $(cat "$work/seen")"
done
end 0
start 0 50 4
wait "${pids[0]}" || say "the first container: exit status $?: $(cat "$work/err0")"
within 0 50
[ -s "$work/err0" ] && say "it said: $(head -n 1 "$work/err0")"

# The host changes a limit by the pid that the process has on the host; inside the container this is refused.
host "$build/gpuarb-set" --pid "$(inner 1)" core=35 || say "gpuarb-set --pid"
await 30 "the new limit" limit_is 35
if [ "$engine" = podman ]; then
	in_podman 0 /bin/gpuarb-set --account x core=90 >"$work/denied" 2>&1 && say "a container may set limits"
else
	plain 0 "$build/gpuarb-set" --account x core=90 >"$work/denied" 2>&1 && say "a container may set limits"
fi
grep -q "only who may write" "$work/denied" || say "a container that sets limits is told: $(cat "$work/denied")"

# A container is killed in the middle, and a neighbour that has just come notices it.
before=$(reclaimed)
end 1
start 0 80 200
await 30 "the dead one's slot is free" some_reclaimed "$before"
await 30 "only the living is shown" one_is_there
end 0
start 0 80 3
wait "${pids[0]}" || say "the container after the kill: exit status $?: $(cat "$work/err0")"
within 0 80
host "$build/gpuarb-watchdog" --once >"$work/dog" 2>&1 || say "gpuarb-watchdog: $(cat "$work/dog")"

[ "$bad" = 0 ] || exit 1
[ "$engine" = podman ] && kind=podman || kind="PID${own:+, user} and mount namespaces"
echo "containers ($kind): two of them kept their limits, one was killed, the host named both"
