#!/bin/bash
# Containers with podman and CDI: an unmodified image becomes a client through the name of a device. For NVIDIA's
# part, the driver and the GPU, there is a spec of the same form for the simulated GPU. Usage: cdi.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=containers
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs podman runc jq unshare
[ "$(id -u)" = 0 ] || skip "it needs root, for mounts of its own"
# It has a /run/cdi of its own, so that the machine's specs are neither changed nor in the way.
if [ -z "${T_INSIDE:-}" ]; then
	unshare --mount true 2>/dev/null || skip "mount namespaces are forbidden here"
	T_INSIDE=1 exec unshare --mount --propagation private test/deploy/cdi.sh "$build"
fi

work=$(mktemp -d /tmp/gpuarb-containers-XXXXXX) && chmod 755 "$work" || exit 1
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) && chmod 755 "$shm" || exit 1
# shellcheck disable=SC2317,SC2329
finish() {
	pod rm --force --all --time 0 >/dev/null 2>&1
	umount /run/cdi 2>/dev/null
	[ -z "$made" ] || rmdir /run/cdi
	rm -rf "$work" "$shm"
}
made=
[ -d /run/cdi ] || made=yes
trap finish EXIT
mkdir -p /run/cdi "$work/cdi" "$work/image" "$shm/gpu"
mount --bind "$work/cdi" /run/cdi || exit 1

# crun refuses machines with both kinds of control groups, and some machines forbid raising limits.
cat >"$work/containers.conf" <<'END'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
END
export CONTAINERS_CONF="$work/containers.conf"
pod() { podman --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs "$@"; }
run() { pod run --network none "$@"; }

# The image has a C library, a few programs, and a client that knows nothing of gpuarb and has no driver.
make --no-print-directory -s BUILD="$build" DESTDIR="$work/host" PREFIX=/usr install || exit 1
into() { # PROGRAM PLACE: it and what it is linked with
	install -D "$1" "$work/image$2"
	ldd "$1" | grep -oE '/[^ ]+' | while read -r library; do
		[ -e "$work/image$library" ] || install -D "$library" "$work/image$library"
	done
}
for program in sh env sleep cat ls id; do into "$(command -v $program)" "/bin/$program"; done
into "$build/simload" /bin/left
into "$build/simload" /bin/right
into "$build/gpuarb-set" /bin/gpuarb-set
# The driver needs the rest of the C library, which any image has.
into "$build/sim/libcuda.so.1" /tmp/driver && rm "$work/image/tmp/driver"
mkdir -p "$work/image/tmp" "$work/image/proc" "$work/image/sys" "$work/image/dev" "$work/image/etc" "$work/image/run"
tar -C "$work/image" -c . | pod import - client >/dev/null 2>&1 || {
	say "podman cannot import an image"
	exit 1
}

export GPUARB_DIR="$shm/arb" GPUSIM_DIR="$shm/gpu" GPUARB_CONF=/dev/null GPUSIM_MODE=share
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_CORE_LIMIT
books() { LD_LIBRARY_PATH="$build/sim" "$build/sim/gpusim-report" --json; }
node() { # TOOL ARGUMENT...: as installed
	local tool=$1
	shift
	LD_LIBRARY_PATH="$build/sim" "$work/host/usr/bin/$tool" "$@"
}

# The spec needs the directories: without them no container would start, so gpuarb-cdi refuses.
node gpuarb-cdi >"$work/said" 2>&1 && say "gpuarb-cdi writes a spec though there are no directories"
grep -q "gpuarb-node makes the directories" "$work/said" || say "gpuarb-cdi says: $(cat "$work/said")"
node gpuarb-node >"$work/said" || say "gpuarb-node failed"
uuid=$(node gpuarb-node --list | cut -f2)
grep -q "^$uuid (GPU 0): ready" "$work/said" || say "gpuarb-node says: $(cat "$work/said")"
node gpuarb-cdi --output /run/cdi/gpuarb.json || say "gpuarb-cdi failed"
for name in 0 0-1 0-30 0-100 "$uuid" "$uuid-30" all all-50; do
	jq -e --arg name "$name" '.devices | any(.name == $name)' /run/cdi/gpuarb.json >/dev/null || say "there is no device $name"
done
cat >/run/cdi/nvidia.json <<END
{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
 "devices": [{"name": "0", "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}}],
 "containerEdits": {"env": ["GPUSIM_DIR=/run/gpusim"], "mounts": [
  {"hostPath": "$build/sim/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1", "options": ["bind", "ro"]},
  {"hostPath": "$shm/gpu", "containerPath": "/run/gpusim", "options": ["bind", "rw"]}]}}
END

# Two containers with 30 and 50 percent; the second has two processes, which share its limit.
nvidia="--device nvidia.com/gpu=0"
# shellcheck disable=SC2086
start() { # NAME DEVICE ARGUMENT...
	local name=$1 device=$2
	shift 2
	run -d --name "$name" $nvidia --device "gpuarb.dev/gpu=$device" client "$@" >"$work/$name.id" 2>"$work/$name.err" ||
		say "podman does not start $name: $(cat "$work/$name.err")"
}
start left 0-30 /bin/left --kernel-us=50 --duration=60
start right "$uuid-50" /bin/right --kernel-us=50 --duration=60 --processes=2
on_gpu() { [ "$(books | jq '[.devices[0].processes[] | select(.alive)] | length')" = "$1" ]; }
if ! until_true 20 on_gpu 3; then
	say "not all are on the GPU: $(pod logs left 2>&1) $(pod logs right 2>&1)"
	exit 1
fi
sleep 1
books >"$work/before"
sleep "${CONTAINER_SECONDS:-6}"
books >"$work/after"
got() { # COMMAND
	# shellcheck disable=SC2016
	share "$work/before" "$work/after" '.command == $command' --arg command "$1"
}
for expected in left:30:1 right:50:2; do
	IFS=: read -r name limit processes <<<"$expected"
	attained=$(got "$name")
	echo "containers: $name: limit $limit, $processes process(es), attained $(percent "$attained")"
	near "$attained" "$limit" || say "$name got $(percent "$attained")"
done

# An observer on the host sees which container each process is in, and may change its limit by that name.
left=$(cut -c1-12 "$work/left.id") right=$(cut -c1-12 "$work/right.id")
"$build/gpuarb-top" --json --once >"$work/top" || say "gpuarb-top failed"
seen() { # ID: processes of its account, all of them known to be in it
	jq --arg id "$1" '[.gpus[].accounts[] | select(.name == $id) | .processes[] |
		select(.container | startswith($id))] | length' "$work/top"
}
[ "$(seen "$left")" = 1 ] || say "gpuarb-top sees $(seen "$left") processes of container $left, not 1"
[ "$(seen "$right")" = 2 ] || say "gpuarb-top sees $(seen "$right") processes of container $right, not 2"
"$build/gpuarb-set" --account "$left" core=10 || say "the limit of a container cannot be changed"
"$build/gpuarb-set" --show | grep -q "account $left: core=10" || say "gpuarb-set does not show the container's limit"

# Root in a container may join, but not set limits: its control directory is read-only.
said=$(pod exec left /bin/gpuarb-set --account "$left" core=100 2>&1) && say "a container has changed its own limit"
grep -q "only who may write /dev/shm/gpuarb/control may do that (Read-only file system)" <<<"$said" || say "a container that sets is told: $said"

# One container is killed: its slot and its memory are free, and the other goes on.
pod kill --signal KILL right >/dev/null
until_true 10 on_gpu 1 || say "the killed container is still on the GPU"
gone() { "$build/gpuarb-top" --json --once >"$work/top" && [ "$(seen "$right")" = 0 ]; }
until_true 10 gone || say "gpuarb-top still shows processes of the killed container"
"$build/gpuarb-watchdog" --once >"$work/said" || say "the watchdog found something wrong: $(cat "$work/said")"
[ "$(pod inspect left --format '{{.State.Status}}')" = running ] || say "the other container does not run any more"
pod kill --signal KILL left >/dev/null
until_true 10 on_gpu 0 || say "a container is still on the GPU"

# Prints what the client itself says that it got, in hundredths of a percent; if it says nothing, a number that is far
# too large.
said_share() {
	local got
	got=$(sed -nE 's/.*"completed":([0-9]+),"seconds":([0-9.]+)\}$/\1 \2/p' "$work/said" | awk '{ printf "%d", $1 * 50 / $2 / 100 }')
	echo "${got:-99999}"
}

# /etc/ld.so.preload reaches a program that is started with an empty environment, on all GPUs that it sees.
node gpuarb-cdi --ld-so-preload --percents 20 --output /run/cdi/gpuarb.json || say "gpuarb-cdi --ld-so-preload failed"
# shellcheck disable=SC2086
run --rm $nvidia --device gpuarb.dev/gpu=all-20 client /bin/sh -c \
	'exec /bin/env -u LD_PRELOAD /bin/left --kernel-us=50 --duration=3' >"$work/said" 2>&1 || say "the container failed: $(cat "$work/said")"
attained=$(said_share)
[ "$attained" -le 2500 ] || say "by /etc/ld.so.preload it got $(percent "$attained"), not at most 20"

# Without CDI, by flags; two processes of the container share its limit.
flags=$("$build/gpuarb-run" --core 40 --print-container-flags) || say "gpuarb-run prints no flags"
# shellcheck disable=SC2086
run --rm $nvidia $flags client /bin/left --kernel-us=50 --duration=3 --processes=2 >"$work/said" 2>&1 || say "a container by flags fails: $(cat "$work/said")"
attained=$(said_share)
echo "containers: by flags: limit 40, 2 processes, attained $(percent "$attained")"
[ "$attained" -le 4500 ] || say "by flags it got $(percent "$attained"), not at most 40"

# A pod as the kustomize component makes it, with volumes as the kubelet makes them: a link that is replaced when an
# annotation changes.
annotate() { # LINE...
	local fresh
	fresh=$(mktemp -d "$work/pod/..XXXXXX") && chmod 755 "$fresh"
	printf '%s\n' "$@" | head -c -1 >"$fresh/annotations"
	ln -s "$(basename "$fresh")" "$work/pod/..data_tmp" && mv -T "$work/pod/..data_tmp" "$work/pod/..data"
	find "$work/pod" -mindepth 1 -maxdepth 1 -type d ! -path "$fresh" -exec rm -r {} +
}
own_share() { # hundredths of a percent that the one process on the GPU gets in three seconds
	books >"$work/before"
	sleep 3
	books >"$work/after"
	got right
}
expect_share() { # WHAT LIMIT
	attained=$(own_share)
	echo "containers: a pod, $1: attained $(percent "$attained")"
	near "$attained" "$2" || say "a pod, $1, got $(percent "$attained")"
}
if has_kustomize && python3 -c 'import yaml' 2>/dev/null; then
	mkdir -p "$work/kustomize" "$work/pod"
	cp -r tools/deploy/kubernetes/component "$work/kustomize/"
	cp test/k8s/client.yaml "$work/kustomize/pod.yaml"
	printf 'resources: [pod.yaml]\ncomponents: [component]\n' >"$work/kustomize/kustomization.yaml"
	kubectl kustomize "$work/kustomize" >"$work/pod.yaml" || say "kustomize does not build the pod"
	uid=3f6c1e9e-0c0f-4a59-9d5e-2d1c3a1f0b11
	flags=$(test/deploy/pod-flags.py "$work/pod.yaml" $uid /var/lib/gpuarb="$work/host/usr/lib/gpuarb" /dev/shm/gpuarb/state="$GPUARB_DIR/state" \
		/dev/shm/gpuarb/control="$GPUARB_DIR/control" gpuarb-pod="$work/pod" /dev/shm/gpuarb-k8s-gpusim="$shm/gpu") || say "the pod has something new"
	ln -s ..data/annotations "$work/pod/annotations"
	annotate 'gpuarb.dev/core-limit="30"' 'kubernetes.io/config.seen="2026"'
	# shellcheck disable=SC2086
	run -d --name pod $nvidia $flags -e GPUSIM_DIR=/run/gpusim client /bin/right --kernel-us=50 --duration=120 >/dev/null || say "the pod does not start"
	until_true 20 on_gpu 1 || say "the pod is not on the GPU: $(pod logs pod 2>&1)"
	"$build/gpuarb-top" --json --once | grep "\"name\": \"pod-$uid\"" >/dev/null || say "gpuarb-top does not name the pod"
	expect_share 'core-limit "30"' 30
	annotate 'gpuarb.dev/core-limit="10"' 'kubernetes.io/config.seen="2026"'
	sleep 0.3
	expect_share 'annotated to "10"' 10
	annotate 'kubernetes.io/config.seen="2026"' 'nvshare.com/gpu-core-limit="60"'
	sleep 0.3
	expect_share 'with nvshare.com/gpu-core-limit="60"' 60
	pod rm --force --time 0 pod >/dev/null
	until_true 10 on_gpu 0 || say "the pod is still on the GPU"
else
	echo "containers: a pod was not tried, there is no kubectl from 1.21 or no python3-yaml here"
fi

# Root of a user namespace has none of the host's rights: it joins only where all users may, and never sets limits,
# even if it gets a writable control directory.
node gpuarb-cdi --output /run/cdi/gpuarb.json || say "gpuarb-cdi failed"
chmod 777 "$shm/gpu" && chmod 666 "$shm/gpu"/*
mapped="--uidmap 0:100000:10000 --gidmap 0:100000:10000"
# shellcheck disable=SC2086
guest() { run --rm $mapped $nvidia --device gpuarb.dev/gpu=0-20 "$@"; }
guest client /bin/left --kernel-us=50 --duration=1 >"$work/said" 2>&1 || say "a container of a user namespace fails: $(cat "$work/said")"
grep -q "cannot open /dev/shm/gpuarb/state/$uuid: Permission denied" "$work/said" || say "a guest that may not join is told: $(cat "$work/said")"
chmod 666 "$GPUARB_DIR/state/$uuid"
guest client /bin/left --kernel-us=50 --duration=3 >"$work/said" 2>&1 || say "a guest that may join fails: $(cat "$work/said")"
attained=$(said_share)
[ "$attained" -le 2500 ] || say "a guest got $(percent "$attained"), not at most 20"
said=$(guest -v "$GPUARB_DIR/control:/control-of-host/control:rw" client /bin/gpuarb-set --dir /control-of-host --gpu "$uuid" policy=exclusive 2>&1) &&
	say "a guest has changed the policy"
grep -q "only who may write /control-of-host/control may do that (Permission denied)" <<<"$said" || say "a guest that sets is told: $said"

[ "$bad" = 0 ] || exit 1
echo "containers: $(podman --version), limits hold, the host names both, a killed one leaves nothing, none may set"
