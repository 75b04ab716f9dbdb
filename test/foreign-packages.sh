#!/bin/sh
# Unpacks Debian packages of another architecture into a directory, for cross builds, without adding that architecture
# to this machine. Exit status 77: they cannot be downloaded here.
# Usage: foreign-packages.sh ARCHITECTURE DIRECTORY PACKAGE...
set -eu
arch=$1 dir=$2
shift 2
mkdir -p "$dir"
dir=$(readlink -f "$dir")
[ "$(cat "$dir/done" 2>/dev/null)" != "$*" ] || exit 0
mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial" "$dir/debs"
: >"$dir/state/status"
get() {
	apt-get -q -o Dir::State="$dir/state" -o Dir::State::status="$dir/state/status" -o Dir::Cache="$dir/cache" \
		-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User="$(id -un)" "$@"
}
if ! { get update && cd "$dir/debs" && get download "$@"; } >"$dir/log" 2>&1; then
	echo "packages: $* for $arch cannot be had here: $(tail -n 1 "$dir/log")"
	exit 77
fi
for deb in "$dir"/debs/*.deb; do
	dpkg-deb -x "$deb" "$dir"
done
echo "$*" >"$dir/done"
