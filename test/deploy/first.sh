#!/bin/bash
# The first hour of a new user: what the README's commands install, what a tree without its libraries says, and in a
# copy of this system that goes away afterwards: make install, and the Python module. Usage: first.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=first
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
unset MAKEFLAGS MAKELEVEL MFLAGS
work=$(mktemp -d /tmp/gpuarb-first-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
tried=0
make_it() { make --no-print-directory "$@" 2>&1; }

# What is installed for whom: the demo and the build ask for libraries, and for nothing that only a test needs.
packages() { make_it -n "$1" | sed -n 's|^test/install-deps.sh ||p' | tr ' ' '\n' | sort -u; }
for target in demo deps deb; do
	packages $target >"$work/$target"
	for package in gcc libatomic-ops-dev libinih-dev libjansson-dev libncurses-dev; do
		grep -qx "$package" "$work/$target" || say "make $target does not install $package"
	done
	for package in prometheus musl-tools libcriterion-dev tmux strace man-db; do
		grep -qx "$package" "$work/$target" && say "make $target installs $package"
	done
	tried=$((tried + 1))
done
# Nothing is built by dpkg-buildpackage without these.
for package in build-essential debhelper dh-python fakeroot; do
	grep -qx "$package" "$work/deb" || say "make deb does not install $package"
done
packages deps-check | grep -qx libcriterion-dev || say "make check does not install what the tests need"

# A library that is missing: one sentence that names the command, and nothing is compiled.
said=$(make_it BUILD="$work/none" HEADERS="stdio.h gpuarb_no_such_library.h") && say "make goes on without a header"
[ "$(echo "$said" | grep -c .)" -le 2 ] || say "a missing header is said in $(echo "$said" | grep -c .) lines: $said"
echo "$said" | grep -q "headers are missing: gpuarb_no_such_library.h. 'make deps' installs" || say "of a missing header make says: $said"
echo "$said" | grep -q ' CC ' && say "without a header something was compiled"
said=$(make_it BUILD="$work/none" CC="$work/no-such-compiler")
echo "$said" | grep -q "no C compiler .* 'make deps' installs" || say "of a missing compiler make says: $said"
make_it -pn | grep '^HEADERS' | tail -n 1 >"$work/headers"
for header in atomic_ops.h ini.h jansson.h ncurses.h; do
	grep -q " $header" "$work/headers" || say "nobody looks for $header before compiling"
done
tried=$((tried + 3))

# inside: in the copy, as root. Prints a sentence for everything that is wrong.
inside() {
	cat <<'END'
make -s --no-print-directory BUILD=/build install >/first/log 2>&1 || { echo "make install: $(tail -n 3 /first/log)"; exit; }
for python in python3 /usr/bin/python3; do
	command -v $python >/dev/null || continue
	(cd / && $python -c 'import gpuarb') 2>/first/log || echo "after make install $python says: $(tail -n 1 /first/log)"
	(cd / && $python -c 'import gpuarb; gpuarb._lib()') 2>/first/log || echo "the module of $python does not find its library: $(tail -n 1 /first/log)"
done
make -s --no-print-directory BUILD=/build uninstall >/first/log 2>&1 || echo "make uninstall: $(tail -n 3 /first/log)"
END
}
copy() { # in a mount namespace of its own
	mkdir -p "$work/copy"
	mount -t tmpfs none "$work/copy" -o size=1g || return 77
	mkdir "$work/copy/upper" "$work/copy/work" "$work/copy/root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/copy/upper,workdir=$work/copy/work" "$work/copy/root" || return 77
	mkdir "$work/copy/root/first" "$work/copy/root/build"
	mount --bind "$build" "$work/copy/root/build" || return 77
	mount -t proc proc "$work/copy/root/proc" && mount --bind /dev "$work/copy/root/dev" || return 77
	mount -t tmpfs none "$work/copy/root/dev/shm" || return 77
	mkdir -p "$work/copy/root$PWD" && mount --bind "$PWD" "$work/copy/root$PWD" || return 77
	inside >"$work/copy/root/first/inside.sh"
	env -u LD_PRELOAD -u LD_LIBRARY_PATH chroot "$work/copy/root" sh -c "cd '$PWD' && exec bash /first/inside.sh"
	# What was made in the copy is here.
	left=$(find "$work/copy/upper" -type f -name '*gpuarb*' ! -path "$work/copy/upper$PWD/*")
	[ -z "$left" ] || echo "make uninstall leaves $left"
}
if [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null; then
	echo "first: nothing was installed, that needs root and mount namespaces"
else
	export -f copy inside
	export work build
	said=$(timeout 120 unshare --mount --propagation private bash -c copy 2>&1)
	case $? in
	0) [ -z "$said" ] || say "$said" ;;
	77) echo "first: nothing was installed, there can be no copy of this system: $said" ;;
	*) say "the copy of this system failed: $said" ;;
	esac
	tried=$((tried + 1))
fi

[ "$bad" = 0 ] || exit 1
echo "first: $tried things that a new user does go well, or end with the command that mends them"
