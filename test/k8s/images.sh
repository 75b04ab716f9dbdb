#!/bin/bash
# Builds the images for the node of test/k8s/cluster.sh with the two Dockerfiles, on a base that debootstrap makes.
# Usage: images.sh BUILD DIRECTORY
set -eu
cd "$(dirname "$0")/../.."
build=$(readlink -f "$1")
mkdir -p "$2"
dir=$(readlink -f "$2")
changed=$(find "$build"/deb/gpuarb_*.deb "$build/simload" "$build/sim" test/k8s/Dockerfile tools/deploy/kubernetes/Dockerfile -newer "$dir/images.tar" 2>&1) || true
[ -n "$changed" ] || exit 0
work=$(mktemp -d /tmp/gpuarb-images-XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ ! -e "$dir/base" ]; then
	debootstrap --variant=minbase bookworm "$work/root" ${MIRROR:+"$MIRROR"} >"$dir/log" 2>&1 || { tail -n 3 "$dir/log" >&2; exit 1; }
	tar -C "$work/root" -c . >"$dir/base.new" && mv "$dir/base.new" "$dir/base"
fi
# crun refuses machines with both kinds of control groups, and some machines forbid raising limits.
printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n' >"$work/containers.conf"
export CONTAINERS_CONF="$work/containers.conf"
pod() { podman --root "$work/storage" --runroot "$work/runroot" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs "$@"; }
# Notes how long the image of the page took: runtime.sh adds it to its stopwatch.
timed() { # COMMAND...
	local begin=$SECONDS
	"$@" && echo $((SECONDS - begin)) >"$dir/seconds"
}
image() { # NAME DOCKERFILE CONTEXT
	pod build --network host --layers=false -t "docker.io/library/$1" -f "$2" "$3" >>"$dir/log" 2>&1
}
# The container that holds a pod's namespaces.
mkdir "$work/pause"
printf '#include <unistd.h>\nint main(void)\n{\n\tfor (;;)\n\t\tpause();\n}\n' >"$work/pause/pause.c"
cc -static -Os -o "$work/pause/pause" "$work/pause/pause.c"
printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' >"$work/pause/Dockerfile"
if ! {
	pod import "$dir/base" docker.io/library/debian:bookworm-slim >"$dir/log" 2>&1 &&
		image pause:test "$work/pause/Dockerfile" "$work/pause" &&
		timed image gpuarb:0.1 tools/deploy/kubernetes/Dockerfile "$build/deb" &&
		image gpuarb-k8s:test test/k8s/Dockerfile "$build" &&
		pod save --format docker-archive --multi-image-archive --output "$work/images.tar" \
			docker.io/library/{pause:test,gpuarb:0.1,gpuarb-k8s:test} >>"$dir/log" 2>&1
}; then
	tail -n 5 "$dir/log" >&2
	echo "k8s: the images cannot be built" >&2
	exit 1
fi
mv "$work/images.tar" "$dir/"
