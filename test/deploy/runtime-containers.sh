#!/bin/bash
# gpuarb-runtime in front of the real runtimes, under podman and containerd: a container keeps to what it was granted,
# whatever it does. Two simulated GPUs stand for NVIDIA's. Usage: runtime-containers.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=runtime
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs podman runc jq unshare containerd ctr
[ "$(id -u)" = 0 ] || skip "it needs root, for containers"
# It has a /run of its own, so that the machine's engines are not touched.
if [ -z "${T_INSIDE:-}" ]; then
	unshare --mount --pid --fork true 2>/dev/null || skip "namespaces are forbidden here"
	T_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private test/deploy/runtime-containers.sh "$build"
fi
work=$(mktemp -d /tmp/gpuarb-runtime-XXXXXX) && chmod 755 "$work" || exit 1
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) && chmod 755 "$shm" || exit 1
# shellcheck disable=SC2317,SC2329
finish() {
	pod rm --force --all --time 0 >/dev/null 2>&1
	[ -z "${daemon:-}" ] || kill "$daemon" 2>/dev/null
	umount -R "$work/mnt" 2>/dev/null
	umount /run 2>/dev/null
	rm -rf "$work" "$shm"
}
trap finish EXIT
mkdir -p "$work/run" "$work/image" "$shm/gpu" "$work/mnt"
mount --bind "$work/run" /run || exit 1

# As installed, with a group of its own that may join.
make --no-print-directory -s BUILD="$build" DESTDIR="$work/host" PREFIX=/usr install || exit 1
export GPUARB_DIR="$shm/arb" GPUSIM_DIR="$shm/gpu" GPUARB_CONF=/dev/null GPUSIM_MODE=share GPUSIM_DEVICES=2
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_CORE_LIMIT
group=4242
mkdir -p "$shm/arb/state" "$shm/arb/control"
GPUARB_GROUP=$group LD_LIBRARY_PATH="$build/sim" "$work/host/usr/bin/gpuarb-node" >"$work/said" || say "gpuarb-node: $(cat "$work/said")"
mapfile -t uuids < <(LD_LIBRARY_PATH="$build/sim" "$work/host/usr/bin/gpuarb-node" --list | cut -f2)
[ "${#uuids[@]}" = 2 ] || say "there are ${#uuids[@]} GPUs"
conf() { # LINE...
	printf '%s\n' "runtime = ${real:-runc}" "dir = $shm/arb" "$@" >"$work/runtime.conf"
}
conf
# podman starts a runtime with an environment of podman's own.
runtime=$work/gpuarb-runtime
printf '#!/bin/sh\nGPUARB_RUNTIME_CONF=%s exec %s "$@"\n' "$work/runtime.conf" "$work/host/usr/bin/gpuarb-runtime" >"$runtime"
chmod 755 "$runtime"

# Some machines forbid raising limits.
printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n' >"$work/containers.conf"
export CONTAINERS_CONF="$work/containers.conf"
pod() { podman --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs --runtime "$runtime" --cgroup-manager cgroupfs "$@"; }

# The image has a C library, a few programs, and a client that knows nothing of gpuarb. NVIDIA's runtime would bring
# the driver.
into() { # PROGRAM PLACE: it and what it is linked with
	install -D "$1" "$work/image$2"
	ldd "$1" | grep -oE '/[^ ]+' | while read -r library; do
		[ -e "$work/image$library" ] || install -D "$library" "$work/image$library"
	done
}
for program in sh env sleep cat id; do into "$(command -v $program)" "/bin/$program"; done
into "$build/simload" /bin/simload
into "$build/sim/libcuda.so.1" /usr/lib/libcuda.so.1
mkdir -p "$work/image/tmp" "$work/image/proc" "$work/image/sys" "$work/image/dev" "$work/image/etc" "$work/image/run"
tar -C "$work/image" -c . | pod import - client >/dev/null 2>&1 || { say "podman cannot import an image"; exit 1; }
chmod 1777 "$shm/gpu"
run() { # NAME ARGUMENT...
	local name=$1
	shift
	pod run --network none --name "$name" -e GPUSIM_DIR=/run/gpusim -e GPUSIM_MODE=share -e GPUSIM_DEVICES=2 -v "$shm/gpu:/run/gpusim" "$@" 2>"$work/$name.err"
}
books() { LD_LIBRARY_PATH="$build/sim" "$build/sim/gpusim-report" --json; }
# All GPUs know all processes; those that use a GPU have memory there.
on_gpus() { [ "$(books | jq '[.devices[].processes[] | select(.alive and .memory_bytes > 0)] | length')" = "$1" ]; }
got() { # GPU: hundredths of a percent of its time that all processes together got in some seconds
	books >"$work/before"
	sleep "${CONTAINER_SECONDS:-5}"
	books >"$work/after"
	jq -n --slurpfile a "$work/before" --slurpfile b "$work/after" --argjson i "$1" '
		def sum(r): [r.devices[$i].processes[].device_ns] | add // 0;
		(sum($b[0]) - sum($a[0])) * 10000 / ($b[0].devices[$i].now_ns - $a[0].devices[$i].now_ns) | round'
}
index() { # UUID
	[ "$1" = "${uuids[0]}" ] && echo 0 || echo 1
}
measured() { # WHAT LIMIT GPU
	local attained
	attained=$(got "$3")
	echo "runtime: $1: limit $2, attained $(percent "$attained")"
	near "$attained" "$2" || say "$1: limit $2, got $(percent "$attained")"
}
load=(simload --kernel-us=50 --duration=600)

# A user who is not root wants more: an empty LD_PRELOAD, limits and a library path of his own.
run greedy -d --user 1000 --annotation gpuarb.dev/share=35 -e LD_PRELOAD= -e GPUARB_CORE_LIMIT=100 -e GPUARB_ACCOUNT=mine \
	-e GPUARB_DISABLE=1 client "${load[@]}" >/dev/null || say "podman does not start it: $(cat "$work/greedy.err")"
until_true 20 on_gpus 1 || say "it is not on the GPU: $(pod logs greedy 2>&1)"
gpu=$("$runtime" --list | cut -f1)
measured "not root, with variables of its own" 35 "$(index "$gpu")"
pod exec greedy id -G | grep -qw $group || say "podman exec has no right to join: $(pod exec greedy id)"
# Two more are started by exec, one with an empty environment and one that claims to be another account: all share the
# 35.
pod exec -d greedy env -i GPUSIM_DIR=/run/gpusim GPUSIM_MODE=share GPUSIM_DEVICES=2 CUDA_VISIBLE_DEVICES="$gpu" "${load[@]}" >/dev/null
pod exec -d -e GPUARB_ACCOUNT=other -e GPUARB_CORE_LIMIT=100 -e GPUARB_DISABLE=1 greedy "${load[@]}" >/dev/null
until_true 20 on_gpus 3 || say "what was started by exec is not on the GPU"
measured "with two more by podman exec" 35 "$(index "$gpu")"
account=$(pod ps --format '{{.ID}}' | cut -c1-12)
[ "$("$build/gpuarb-top" --json --once | jq -c '[.gpus[].accounts[] | select(.processes != []) | .name]')" = "[\"$account\"]" ] ||
	say "accounts: $("$build/gpuarb-top" --json --once | jq -c '[.gpus[].accounts[] | .name]'), not $account alone"
"$build/gpuarb-set" --account "$account" core=20 || say "its limit cannot be changed on the host"
sleep 1
measured "changed to 20 on the host" 20 "$(index "$gpu")"
pod rm --force --time 0 greedy >/dev/null
until_true 20 on_gpus 0 || say "it is still on the GPU"
[ -z "$("$runtime" --list)" ] || say "what it was granted is not free: $("$runtime" --list)"

# Four containers of 50 fill both GPUs. The fifth does not start.
for i in 1 2 3 4; do
	run "half$i" -d --annotation gpuarb.dev/share=50 --annotation gpuarb.dev/memory-gib=4 client "${load[@]}" >/dev/null || say "half$i: $(cat "$work/half$i.err")"
done
until_true 20 on_gpus 4 || say "not all four are on the GPUs"
[ "$("$runtime" --list | cut -f1 | sort | uniq -c | awk '{print $1}' | tr '\n' ' ')" = "2 2 " ] || say "they are not two on each: $("$runtime" --list)"
measured "four of 50, first GPU" 100 0
measured "four of 50, second GPU" 100 1
run fifth -d --annotation gpuarb.dev/share=10 client "${load[@]}" >/dev/null && say "a fifth container was started"
grep -q "no GPU has room for 10 shares" "$work/fifth.err" || say "podman says: $(cat "$work/fifth.err")"
pod rm --force --all --time 0 >/dev/null

# A container that must not start reports why where the engine's user reads it.
refused() { # NAME SENTENCE ARGUMENT...
	local name=$1 sentence=$2
	shift 2
	run "$name" --rm "$@" client "${load[@]}" >/dev/null && say "$name has started"
	grep -q "$sentence" "$work/$name.err" || say "$name: podman says: $(cat "$work/$name.err")"
}
refused bad "gpuarb.dev/share: 'x' is no number" --annotation gpuarb.dev/share=x
refused misspelt "did you mean gpuarb.dev/share" --annotation gpuarb.dev/shares=30
refused none "asks for no share of a GPU"
run gid --rm --user 1000:1000 --annotation gpuarb.dev/share=5 --read-only client id -G >"$work/said" || say "a read-only root: $(cat "$work/gid.err")"
[ "$(cat "$work/said")" = "1000 $group" ] || say "its groups are $(cat "$work/said")"
run set --rm --annotation gpuarb.dev/share=5 client sh -c 'echo x >/dev/shm/gpuarb/control/x; echo x >/usr/lib/gpuarb/granted; echo x >/etc/ld.so.preload; cat /usr/lib/gpuarb/granted' >"$work/said"
[ "$(grep -c 'Read-only file system' "$work/set.err")" = 3 ] || say "root inside may change what was granted: $(cat "$work/set.err")"
grep -q '^GPUARB_CORE_LIMIT=5$' "$work/said" || say "granted: $(cat "$work/said")"

# containerd: its own shim starts the runtime, as on a node of Kubernetes. The annotations are those of a pod.
mkdir -p "$work/containerd"
printf 'version = 2\nroot = "%s/containerd/root"\nstate = "/run/containerd"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' "$work" >"$work/containerd.toml"
containerd --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
daemon=$!
until_true 20 test -S /run/containerd/containerd.sock || say "containerd does not start: $(tail -n 3 "$work/containerd.log")"
uid=3f6c1e9e-0c0f-4a59-9d5e-2d1c3a1f0b11
task() { # NAME ARGUMENT...: a container of a pod, on the image's directory
	local name=$1
	shift
	ctr run --rootfs --runc-binary "$runtime" --annotation io.kubernetes.cri.container-type=container --annotation io.kubernetes.cri.sandbox-name=train \
		--annotation io.kubernetes.cri.sandbox-namespace=team --annotation io.kubernetes.cri.sandbox-uid=$uid --env GPUSIM_DIR=/run/gpusim \
		--env GPUSIM_MODE=share --env GPUSIM_DEVICES=2 --env PATH=/bin --env GPUARB_CORE_LIMIT=100 --env LD_PRELOAD= \
		--mount "type=bind,src=$shm/gpu,dst=/run/gpusim,options=rbind:rw" "$@"
}
task one --detach --annotation gpuarb.dev/share=30 "$work/image" one "${load[@]}" >"$work/said" 2>&1 || say "containerd does not start a container: $(cat "$work/said")"
until_true 20 on_gpus 1 || say "the container is not on the GPU"
gpu=$("$runtime" --list | cut -f1)
measured "containerd" 30 "$(index "$gpu")"
[ "$("$runtime" --list | cut -f5)" = "pod-$uid" ] || say "its account is $("$runtime" --list)"
# kubectl exec does this: the shim writes a process.json from what it knows of the container. Here it has another
# user, and no mount tells which container it is in.
chmod 666 "$shm/gpu"/*
ctr task exec --detach --user 1000 --exec-id e1 one "${load[@]}" >"$work/said" 2>&1 || say "exec: $(cat "$work/said")"
until_true 20 on_gpus 2 || say "what was started by exec is not on the GPU"
measured "containerd, with another user's by exec" 30 "$(index "$gpu")"
task two --rm --annotation gpuarb.dev/share=x "$work/image" two "${load[@]}" >"$work/said" 2>&1 && say "a container with a bad annotation has started"
grep -q "gpuarb.dev/share: 'x' is no number" "$work/said" || say "containerd says: $(cat "$work/said")"
# The pod as an API server describes it.
printf '#!/bin/sh\necho "{\\"metadata\\": {\\"uid\\": \\"%s\\"}, \\"spec\\": {\\"containers\\": [{\\"resources\\": {\\"limits\\": {\\"gpuarb.dev/share\\": \\"15\\"}}}]}}"\n' $uid >"$work/pod-of"
chmod 755 "$work/pod-of"
ctr task kill --signal 9 --all one >/dev/null 2>&1
until_true 20 on_gpus 0 || say "the killed container is still on the GPU"
ctr task delete --force one >/dev/null 2>&1
ctr container delete one >/dev/null 2>&1
[ -z "$("$runtime" --list)" ] || say "what it was granted is not free: $("$runtime" --list)"
conf "pod_command = $work/pod-of"
task three --detach --annotation gpuarb.dev/share=90 "$work/image" three "${load[@]}" >"$work/said" 2>&1 || say "containerd does not start a container: $(cat "$work/said")"
until_true 20 on_gpus 1 || say "the container is not on the GPU"
measured "annotated 90, granted 15 by the API server" 15 "$(index "$("$runtime" --list | cut -f1)")"
ctr task kill --signal 9 --all three >/dev/null 2>&1
until_true 20 on_gpus 0 || say "a container is still on the GPU"
ctr task delete --force three >/dev/null 2>&1
# The same steps with crun behind it. crun refuses machines with both kinds of control groups, so only one kind is
# mounted from here on, and the container gets no group of its own, for which crun would raise a limit.
! grep -q ' cgroup ' /proc/self/mounts || { umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; }
if command -v crun >/dev/null && podman --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs --runtime crun --cgroup-manager cgroupfs \
	run --rm --network none --cgroups disabled client id >"$work/said" 2>&1; then
	real=crun conf
	# podman recognises by the name what this runtime can do.
	install -D "$runtime" "$work/behind/crun" && runtime=$work/behind/crun
	run crun -d --cgroups disabled --user 1000 --annotation gpuarb.dev/share=25 -e LD_PRELOAD= -e GPUARB_CORE_LIMIT=100 client "${load[@]}" >/dev/null || say "crun: $(cat "$work/crun.err")"
	until_true 20 on_gpus 1 || say "under crun it is not on the GPU: $(pod logs crun 2>&1)"
	measured "crun" 25 "$(index "$("$runtime" --list | cut -f1)")"
	pod exec -d --user 0 crun "${load[@]}" >/dev/null
	until_true 20 on_gpus 2 || say "under crun, what was started by exec is not on the GPU"
	measured "crun, with another user's by exec" 25 "$(index "$("$runtime" --list | cut -f1)")"
	pod rm --force --all --time 0 >/dev/null
	until_true 20 on_gpus 0 || say "under crun a container is still on the GPU"
	behind=", $(crun --version | head -n 1)"
else
	echo "runtime: not tried with crun, which runs no container here: $(tail -n 1 "$work/said")"
fi
"$build/gpuarb-watchdog" --once >"$work/said" || say "the watchdog found something wrong: $(cat "$work/said")"

[ "$bad" = 0 ] || exit 1
echo "runtime: $(podman --version), containerd $(containerd --version | cut -d' ' -f3), $(runc --version | head -n 1)${behind:-}: shares hold, exec included, and nothing starts without one"
