#!/bin/bash
# Checks the admission policies with the code of Kubernetes 1.36 that applies them. Debian's unstable suite has it as
# a library. It is built in a root of its own, which is kept. The first time takes five minutes of processor time and
# 2 GB.
# Usage: plugins.sh BUILD      MIRROR: a mirror of Debian, instead of debootstrap's own choice
set -u
cd "$(dirname "$0")/../.." || exit 1
mkdir -p "$1/policies"
dir=$(readlink -f "$1/policies")
what=policies
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs debootstrap unshare
[ "$(id -u)" = 0 ] || skip "making a root needs root"
python3 -c 'import yaml' 2>/dev/null || skip "there is no python3-yaml here"
root=$dir/root
if [ ! -e "$root/.complete" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase --include=golang-go,golang-k8s-apiserver-dev sid "$root" ${MIRROR:+"$MIRROR"} >"$dir/log" 2>&1 ||
		skip "Debian's unstable suite cannot be had here: $(tail -n 1 "$dir/log")"
	: >"$root/.complete"
fi
# shellcheck disable=SC2016
version=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Version}' golang-k8s-apiserver-dev) || exit 1
mkdir -p "$root/build"
cp test/deploy/plugins/main.go "$root/build/"
# The suite changes: a later Kubernetes may need other calls.
# shellcheck disable=SC2016
if ! unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/build GOROOT=/usr/lib/go \
	GO111MODULE=off GOPATH=/usr/share/gocode CGO_ENABLED=0 go build -o /build/judge /build/main.go' sh "$root" >"$dir/log" 2>&1; then
	case "$version" in
	0.36.*) say "it does not build: $(tail -n 3 "$dir/log")" ;;
	*) skip "it is written for Kubernetes 1.36, and does not build with $version" ;;
	esac
	exit 1
fi
echo "policies: k8s.io/apiserver $version"
python3 test/deploy/plugins.py "$root/build/judge" tools/deploy/kubernetes
