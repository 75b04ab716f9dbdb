#!/bin/sh
# Builds the Debian packages from a clean copy of the tree, into BUILD/deb. Usage: deb.sh BUILD VERSION
set -eu
cd "$(dirname "$0")/../.."
build=$1 version=$2
if ! command -v dpkg-buildpackage >/dev/null; then
	echo "deb: not built, there is no dpkg-buildpackage here" >&2
	exit 1
fi
rm -rf "$build/deb"
mkdir -p "$build/deb/gpuarb-$version"
deb=$(readlink -f "$build/deb")
# What git knows, as it is now; without git, everything but what was built.
if git rev-parse --git-dir >/dev/null 2>&1; then
	git ls-files -z | tar -c --null --files-from=- | tar -x -C "$deb/gpuarb-$version"
	date=$(git log -1 --format=%cD)
else
	tar -c --exclude="./${build#./}" --exclude=./.git . | tar -x -C "$deb/gpuarb-$version"
	date=$(date -R)
fi
cd "$deb/gpuarb-$version"
cp -r tools/deploy/debian debian
sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$date/" debian/changelog.in >debian/changelog
rm debian/changelog.in
echo "Building the packages (a minute or two; the log is $build/deb/build.log)..."
# What the calling make was told is not meant for this build.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS WERROR V BUILD OPT CFLAGS CPPFLAGS LDFLAGS DESTDIR PREFIX
if ! DEB_BUILD_OPTIONS="parallel=$(nproc) noautodbgsym" dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary >"$deb/build.log" 2>&1; then
	tail -n 20 "$deb/build.log" >&2
	echo "deb: the build failed; all of it is in $deb/build.log" >&2
	exit 1
fi
for package in "$deb"/*.deb; do echo "${package#"$(dirname "$(dirname "$deb")")"/}"; done
