#!/bin/bash
# Builds Kubernetes for test/k8s/cluster.sh from the source package of Debian 12; of that package Debian itself builds
# only kubectl. This takes eleven minutes of processor time and 3 GB of space. What is already built is kept. Exit
# status 77: it cannot be built here.
# Usage: build.sh DIRECTORY      MIRROR: a mirror of Debian, instead of the one that apt uses
set -eu
mkdir -p "$1"
dir=$(readlink -f "$1")
cd "$(dirname "$0")/../.."
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
not() {
	echo "k8s: not tried, $*"
	exit 77
}
has_kustomize || not "there is no kubectl from 1.21 here"
programs=(kube-apiserver kube-scheduler kube-controller-manager kubelet)
# The packages are unpacked, not installed, so that none of their services starts.
test/foreign-packages.sh "$(dpkg --print-architecture)" "$dir/debs" etcd-server containerd containernetworking-plugins
[ ! -e "$dir/done" ] || exit 0
work=$dir/work
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/home"
# shellcheck disable=SC2016
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Component: main' 2>/dev/null | head -n 1)}
[ -n "$mirror" ] || not "apt knows no mirror of Debian 12 (MIRROR=...)"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" >"$work/sources.list"
get() {
	apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists" \
		-o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= -o APT::Sandbox::User="$(id -un)" "$@"
}
if ! { get update && cd "$work" && get source kubernetes; } >"$dir/log" 2>&1; then
	not "the sources of Kubernetes cannot be had here: $(tail -n 1 "$dir/log")"
fi
cd "$work"/kubernetes-*/
# The copy of this library in the package walks through maps as Go did before 1.18, and crashes.
reflect=vendor/github.com/modern-go/reflect2
rm -f $reflect/*.go $reflect/*.s
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.go /usr/share/gocode/src/github.com/modern-go/reflect2/*.s $reflect/
cat >"$work/version" <<END
KUBE_GIT_COMMIT=debian
KUBE_GIT_TREE_STATE=archive
KUBE_GIT_VERSION=v1.20.2
KUBE_GIT_MAJOR=1
KUBE_GIT_MINOR=20
END
echo "k8s: building Kubernetes, which takes a while (the log is $dir/log)"
if ! env -u MAKEFLAGS -u MAKELEVEL -u MAKEOVERRIDES HOME="$work/home" GOPATH="$work/home" KUBE_GIT_VERSION_FILE="$work/version" CGO_ENABLED=0 make WHAT="${programs[*]/#/cmd/}" >>"$dir/log" 2>&1; then
	tail -n 5 "$dir/log" >&2
	echo "k8s: Kubernetes does not build" >&2
	exit 1
fi
for program in "${programs[@]}"; do mv "_output/bin/$program" "$dir/"; done
rm -rf "$work"
: >"$dir/done"
