#!/bin/bash
# The first hour of a new user: what the README's commands install, and what a tree without its libraries says. Then,
# in a copy of this system that is deleted afterwards: make install, the Python module, and gpuarb-node, after which
# the users of the machine can use gpuarb.
# Usage: first.sh BUILD
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

# The demo and the build must install the libraries that they need, and nothing that only a test needs.
packages() { make_it -n "$1" | sed -n 's|^test/install-deps.sh ||p' | tr ' ' '\n' | sort -u; }
for target in demo deps deb; do
	packages $target >"$work/$target"
	for package in gcc libatomic-ops-dev libinih-dev libjansson-dev libncurses-dev liburcu-dev; do
		grep -qx "$package" "$work/$target" || say "make $target does not install $package"
	done
	for package in prometheus musl-tools libcriterion-dev tmux strace man-db; do
		grep -qx "$package" "$work/$target" && say "make $target installs $package"
	done
	tried=$((tried + 1))
done
# dpkg-buildpackage builds nothing without these.
for package in build-essential debhelper dh-python fakeroot; do
	grep -qx "$package" "$work/deb" || say "make deb does not install $package"
done
packages deps-check | grep -qx libcriterion-dev || say "make check does not install what the tests need"

# A service that a test installs must not start with the machine: a service that came with a package is disabled, one
# that was there before stays enabled.
if [ "$(id -u)" = 0 ]; then
	mkdir "$work/fake"
	# shellcheck disable=SC2016
	for fake in 'dpkg-query:case "$*" in *newthing) [ -e $S/in ] && echo install ok installed ;; *) echo "ii  old"; [ ! -e $S/in ] || echo "ii  newthing" ;; esac' \
		'apt-get:case "$*" in *simulate*) ;; *install*) : >$S/in ;; esac' \
		'dpkg:[ "$2" = newthing ] && printf "%s\n" /lib/systemd/system/newthing.service /usr/lib/systemd/system/fixed.service /usr/bin/newthing' \
		'systemctl:case "$1 $2" in "is-enabled newthing.service") echo enabled ;; is-enabled*) echo static ;; disable*) echo "$@" >>$S/disabled ;; esac'; do
		printf '#!/bin/sh\nS=%s\n%s\n' "$work/fake" "${fake#*:}" >"$work/fake/${fake%%:*}"
		chmod 755 "$work/fake/${fake%%:*}"
	done
	PATH="$work/fake:$PATH" test/install-deps.sh newthing >"$work/log" 2>&1 || say "install-deps.sh fails: $(cat "$work/log")"
	[ "$(cat "$work/fake/disabled" 2>/dev/null)" = "disable --now --quiet newthing.service" ] || say "of services that came along it disables: $(cat "$work/fake/disabled" 2>&1)"
	tried=$((tried + 1))
fi

# For a missing library there is one sentence that names the command, and nothing is compiled.
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

# inside: runs in the copy as root, and prints a sentence for each thing that is wrong.
inside() {
	cat <<'END'
userdel gpuarb 2>/dev/null
groupdel gpuarb 2>/dev/null
useradd alice && useradd bob || { echo "no users can be made in the copy"; exit; }
SUDO_USER=alice make -s --no-print-directory BUILD=/build install >/first/log 2>&1 || { echo "make install: $(tail -n 3 /first/log)"; exit; }
grep -q "Next: 'sudo gpuarb-node'" /first/log && grep -q "'sudo adduser alice gpuarb'" /first/log || echo "make install names no next command: $(tail -n 3 /first/log)"
for python in python3 /usr/bin/python3; do
	command -v $python >/dev/null || continue
	(cd / && $python -c 'import gpuarb') 2>/first/log || echo "after make install $python says: $(tail -n 1 /first/log)"
	(cd / && $python -c 'import gpuarb; gpuarb._lib()') 2>/first/log || echo "the module of $python does not find its library: $(tail -n 1 /first/log)"
done
# For the users of the machine. `gpu` runs a command with the simulated driver in the place of NVIDIA's.
userdel gpuarb 2>/dev/null
groupdel gpuarb 2>/dev/null
export GPUSIM_DIR=/first/gpu GPUARB_CONF=/dev/null
mkdir -p -m 1777 $GPUSIM_DIR
chmod 1777 $GPUSIM_DIR
gpu() { env LD_LIBRARY_PATH=/build/sim "$@"; }
user() { # NAME COMMAND...
	who=$1
	shift
	setpriv --reuid "$who" --regid "$who" --init-groups env LD_LIBRARY_PATH=/build/sim "$@"
}
expect() { # STATUS PATTERN COMMAND...
	wanted=$1 pattern=$2
	shift 2
	"$@" >/first/out 2>&1
	status=$?
	[ $status = "$wanted" ] && grep -qE -- "$pattern" /first/out || echo "$*: status $status instead of $wanted, or no '$pattern': $(cat /first/out)"
}
cd /
work="simload --kernel-us=50 --launches=50"
cp /build/simload /usr/local/bin/

# Before the machine is set up, a user makes a segment of his own.
expect 1 '^missing  directory .*No such file' gpu gpuarb-node --check
expect 0 . user alice gpuarb-run -- $work
expect 0 '^note     directory .*belongs to user' user alice gpuarb-node --check
expect 0 "it is not shared yet: 'sudo gpuarb-node' gives it to the group gpuarb" user bob gpuarb-run --core 50 -- $work
expect 1 '^missing  group .*there is no group gpuarb' user bob gpuarb-node --check

# Root sets it up: the group, the rights, and the next command is named. A second time nothing new is said.
SUDO_USER=alice expect 0 "Next: 'sudo adduser alice gpuarb'" gpu gpuarb-node
grep -q '^group gpuarb: made' /first/out || echo "gpuarb-node says nothing of the group that it made: $(cat /first/out)"
getent group gpuarb >/dev/null || echo "gpuarb-node made no group"
rights=$(stat -c '%a %U:%G' /dev/shm/gpuarb /dev/shm/gpuarb/state /dev/shm/gpuarb/control /dev/shm/gpuarb/state/GPU-* /dev/shm/gpuarb/control/GPU-* 2>&1 | tr '\n' ' ')
[ "$rights" = "755 root:root 3775 root:gpuarb 755 root:root 660 root:gpuarb 644 root:root " ] || echo "the rights after gpuarb-node: $rights"
for name in alice bob; do
	expect 1 "^missing  group .*you are not in the group gpuarb" user $name gpuarb-node --check
	grep -q "sudo adduser $name gpuarb, then log in again" /first/out || echo "--check does not name the command: $(cat /first/out)"
	expect 0 "members of the group gpuarb may: 'sudo adduser \\\$USER gpuarb', then log in again" user $name gpuarb-run --core 50 -- $work
	usermod -aG gpuarb $name
	expect 1 "^missing  group .*but were not when you logged in" env LD_LIBRARY_PATH=/build/sim setpriv --reuid $name --regid $name --clear-groups gpuarb-node --check
	expect 0 "^ok       group .*you are in the group gpuarb" user $name gpuarb-node --check
	user $name gpuarb-run --core 50 --account of-$name -- $work >/first/out 2>&1 && ! grep -q gpuarb /first/out || echo "$name is in the group and is told: $(cat /first/out)"
done
SUDO_USER=alice gpu gpuarb-node >/first/out
grep -qE 'Next|made' /first/out && echo "gpuarb-node has something to say of the group the second time: $(cat /first/out)"
expect 0 '^ok       segment .*you may join' gpu gpuarb-node --check
# What root has opened for all users stays open, and needs no group.
chmod 666 /dev/shm/gpuarb/state/GPU-*
gpu gpuarb-node >/first/out
[ "$(stat -c %a /dev/shm/gpuarb/state/GPU-*)" = 666 ] || echo "gpuarb-node takes back what root allowed"
useradd carol
expect 0 '^note     group .*may join all the same' user carol gpuarb-node --check
# Without a driver.
expect 1 '^missing  GPUs' gpuarb-node --check
expect 2 'no --replace' gpuarb-node --check --replace
# With another group, from arbiter.conf.
rm -rf /dev/shm/gpuarb
GPUARB_GROUP=bob expect 0 "ready" gpu gpuarb-node
[ "$(stat -c %G /dev/shm/gpuarb/state /dev/shm/gpuarb/state/GPU-* | sort -u)" = bob ] || echo "the group of arbiter.conf is not taken: $(stat -c %G /dev/shm/gpuarb/state /dev/shm/gpuarb/state/GPU-* | tr '\n' ' ')"
rm -f /usr/local/bin/simload
cd - >/dev/null

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
	# The files that were made in the copy are here.
	left=$(find "$work/copy/upper" -type f -name '*gpuarb*' ! -path "$work/copy/upper$PWD/*")
	[ -z "$left" ] || echo "make uninstall leaves $left"
}
if [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null; then
	echo "first: nothing was installed, that needs root and mount namespaces"
else
	export -f copy inside
	export work build
	said=$(timeout 240 unshare --mount --propagation private bash -c copy 2>&1)
	case $? in
	0) [ -z "$said" ] || say "$said" ;;
	77) echo "first: nothing was installed, there can be no copy of this system: $said" ;;
	*) say "the copy of this system failed: $said" ;;
	esac
	tried=$((tried + 1))
fi

[ "$bad" = 0 ] || exit 1
echo "first: $tried things that a new user does go well, or end with the command that mends them"
