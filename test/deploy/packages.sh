#!/bin/bash
# The Debian packages: checked by lintian, then installed, used and removed in a copy of this system, which is deleted
# afterwards.
# Usage: packages.sh BUILD   (after `make deb`)
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=deb
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
shopt -s nullglob
packages=("$build"/deb/gpuarb_*.deb "$build"/deb/libgpuarb1_*.deb "$build"/deb/libgpuarb-dev_*.deb "$build"/deb/python3-gpuarb_*.deb)
[ "${#packages[@]}" = 4 ] || { say "there are ${#packages[@]} packages, not 4"; exit 1; }

lintian --allow-root --fail-on error "$build"/deb/*.changes >"$build/deb/lintian" 2>&1 || say "lintian: $(cat "$build/deb/lintian")"
work=$(mktemp -d /tmp/gpuarb-deb-XXXXXX) || exit 1
trap 'rm -rf "$work" "$work.copy"' EXIT
for package in "${packages[@]}"; do dpkg -x "$package" "$work/files"; done
test/preload/preload_loads.sh "$work/files/usr/lib/gpuarb/libgpuarb-preload.so" >/dev/null || say "the packaged library does not load everywhere"

# inside: runs in the copy as root, and prints a sentence for each thing that is wrong.
inside() {
	cat <<'END'
export DEBIAN_FRONTEND=noninteractive
dpkg -i /packages/*.deb >/packages/log.first 2>&1 || { echo "they cannot be installed: $(tail -n 5 /packages/log.first)"; exit; }
getent group gpuarb >/dev/null || echo "there is no group gpuarb"
[ "$(stat -c '%a %U:%G' /dev/shm/gpuarb/state 2>&1)" = "3775 root:gpuarb" ] || echo "/dev/shm/gpuarb/state is $(stat -c '%a %U:%G' /dev/shm/gpuarb/state 2>&1)"
[ "$(stat -c '%a %U:%G' /dev/shm/gpuarb/control 2>&1)" = "755 root:root" ] || echo "/dev/shm/gpuarb/control is $(stat -c '%a %U:%G' /dev/shm/gpuarb/control 2>&1)"
[ -x /usr/share/gpuarb/kubernetes/setup-nodes ] || echo "setup-nodes cannot be run"
[ "$(dpkg -L gpuarb | grep -c /_gpuarb)" = 1 ] || echo "zsh's completion is there $(dpkg -L gpuarb | grep -c /_gpuarb) times"
for tool in run set top watchdog node cdi runtime; do
	gpuarb-$tool --version >/dev/null || echo "gpuarb-$tool does not run"
	[ -s /usr/share/man/man1/gpuarb-$tool.1.gz ] || echo "gpuarb-$tool has no man page"
	[ -s /usr/share/bash-completion/completions/gpuarb-$tool ] || echo "gpuarb-$tool has no completion"
done
gpuarb-run --dry-run -- true | grep -qE '^LD_PRELOAD=(/usr/lib/gpuarb|/usr/bin/\.\./lib/gpuarb)/libgpuarb-preload.so' || echo "gpuarb-run does not find its library"
gpuarb-node --gpu GPU-00000000-0000-0000-0000-0000000000db >/packages/log || echo "gpuarb-node fails"
[ "$(stat -c '%a %G' /dev/shm/gpuarb/state/GPU-00000000-0000-0000-0000-0000000000db)" = "660 gpuarb" ] || echo "a new segment is $(stat -c '%a %G' /dev/shm/gpuarb/state/GPU-00000000-0000-0000-0000-0000000000db)"
printf '#include <gpuarb.h>\n#include <stdio.h>\nint main(void) { struct gpuarb_status s; int r = gpuarb_status(0, &s); printf("%%d %%u", r, s.high_water); return 0; }\n' >/packages/p.c
cc -o /packages/p /packages/p.c $(pkg-config --cflags --libs gpuarb) || echo "a program cannot be built with libgpuarb-dev"
[ "$(/packages/p)" = "0 85" ] || echo "a program with libgpuarb1 says $(/packages/p)"
/usr/bin/python3 -c 'import gpuarb; gpuarb.status("GPU-00000000-0000-0000-0000-0000000000db")' || echo "the Python module does not work"
[ -s /usr/share/man/man5/arbiter.conf.5.gz ] || echo "arbiter.conf has no man page"
grep -q "adduser .* gpuarb" /packages/log.first || echo "whoever installs is not told the next command"
gpuarb-run --sim --dry-run -- true | grep -qE '^LD_LIBRARY_PATH=/usr/(bin/\.\./)?lib/gpuarb/sim' || echo "gpuarb-run does not find the simulated GPU"
gpuarb-node --check | grep -q '^ok  *library' || echo "gpuarb-node --check does not find the library"
[ -s /usr/share/man/man3/gpuarb.3.gz ] || echo "the library has no man page"
dpkg -i /packages/*.deb >/packages/log 2>&1 || echo "they cannot be installed over themselves"
[ -s /dev/shm/gpuarb/state/GPU-00000000-0000-0000-0000-0000000000db ] || echo "an upgrade has removed a segment"
dpkg --purge gpuarb python3-gpuarb libgpuarb-dev libgpuarb1 >/packages/log 2>&1 || echo "they cannot be removed: $(tail -n 5 /packages/log)"
left=$(find /etc /usr /var -xdev -name '*gpuarb*' -newer /packages/begin)
[ -z "$left" ] || echo "what stays: $left"
END
}
inside >"$work/inside.sh"
if [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null; then
	echo "deb: not installed, that needs root and mount namespaces"
else
	# shellcheck disable=SC2016
	said=$(unshare --mount --propagation private sh -c '
		work=$1
		shift
		mkdir -p "$work"
		mount -t tmpfs none "$work" -o size=2g || exit 1
		mkdir "$work/upper" "$work/work" "$work/root"
		mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root" || exit 1
		mkdir "$work/root/packages"
		touch "$work/root/packages/begin"
		cp "$@" "$work/root/packages/"
		mount -t proc proc "$work/root/proc"
		mount --bind /dev "$work/root/dev"
		mount -t tmpfs none "$work/root/dev/shm"
		# No service may be started in the copy.
		printf "#!/bin/sh\nexit 101\n" >"$work/root/usr/sbin/policy-rc.d"
		chmod 755 "$work/root/usr/sbin/policy-rc.d"
		chroot "$work/root" sh /packages/inside.sh' sh "$work.copy" "${packages[@]}" "$work/inside.sh" 2>&1)
	[ -z "$said" ] || say "$said"
fi

[ "$bad" = 0 ] || exit 1
errors=$(grep -c '^W:' "$build/deb/lintian")
echo "deb: no errors by lintian ($errors warnings); installed, used, installed again and removed in a copy of this system"
