#!/bin/sh
# Checks the units with systemd's own tools: systemd understands them and they are as restricted as possible. systemd
# makes the directories and the user, in a root directory of their own. Usage: systemd.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
if ! command -v systemd-analyze >/dev/null || ! command -v systemd-tmpfiles >/dev/null; then
	echo "systemd: not tried, there is no systemd-analyze here"
	test/skipped.sh 77
	exit
fi
root=$(mktemp -d /tmp/gpuarb-systemd-XXXXXX) || exit 1
trap 'rm -rf "$root"' EXIT
bad=0
say() {
	echo "systemd: $*" >&2
	bad=$((bad + 1))
}
make --no-print-directory -s BUILD="$build" DESTDIR="$root" PREFIX=/usr install || say "make install failed"
units="$root/usr/lib/systemd/system"

# The units name the programs where they are now; the rest is as installed.
sed -i "s|/usr/bin/gpuarb|$root/usr/bin/gpuarb|; s|/usr/lib/gpuarb|$root/usr/lib/gpuarb|" "$units"/*.service
for unit in "$units"/gpuarb-*; do
	# What it says about units of other packages does not count.
	said=$(systemd-analyze --man=no --recursive-errors=no verify "$unit" 2>&1 | grep gpuarb |
		grep -v 'gpuarb-top.*not executable')
	[ -z "$said" ] || say "$said"
done

# exposed UNIT MOST: compares systemd's own grade, from 0 (closed) to 100 (open)
exposed() {
	systemd-analyze security --offline=yes --threshold="$2" "$units/$1" >"$root/security" 2>&1 ||
		say "$1 is more open than $2: $(tail -n 1 "$root/security")"
}
exposed gpuarb-watchdog.service 12
exposed gpuarb-export.service 14
# The watchdog samples for all clients: a restriction between it and NVML would leave them with the busy clock.
grep -qE '^(PrivateDevices|ProcSubset|DevicePolicy|DeviceAllow)=' "$units/gpuarb-watchdog.service" && say "the watchdog's unit hides the GPUs from it"
for asked in ProtectSystem=strict CapabilityBoundingSet= NoNewPrivileges=yes RemoveIPC=no; do
	grep -qx "$asked" "$units/gpuarb-watchdog.service" || say "the watchdog's unit does not say $asked"
done

# Container engines start after the segments are made; a driver whose device comes late is waited for.
for engine in containerd crio docker podman kubelet slurmd; do
	grep '^Before=' "$units/gpuarb-node.service" | grep -qw "$engine.service" || say "gpuarb-node is not ordered before $engine"
done
grep -q '^ConditionPathExists=/dev/nvidiactl' "$units/gpuarb-node.service" && say "gpuarb-node does not run where the device comes late"
grep -q '^Restart=on-failure' "$units/gpuarb-node.service" || say "gpuarb-node is not tried again"

# The user, its group and the directories.
mkdir -p "$root/etc" "$root/dev/shm"
printf 'root:x:0:0::/root:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
if [ "$(id -u)" = 0 ]; then
	systemd-sysusers --root="$root" "$root/usr/lib/sysusers.d/gpuarb.conf" >/dev/null 2>"$root/said" ||
		say "systemd-sysusers: $(cat "$root/said")"
	gid=$(sed -n 's/^gpuarb:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/group")
	[ -n "$gid" ] || say "there is no group gpuarb"
	systemd-tmpfiles --root="$root" --create "$root/usr/lib/tmpfiles.d/gpuarb.conf" 2>"$root/said" ||
		say "systemd-tmpfiles: $(cat "$root/said")"
	for expected in ":755:0:0" "/state:3775:0:$gid" "/control:755:0:0"; do
		got="${expected%%:*}:$(stat -c %a:%u:%g "$root/dev/shm/gpuarb${expected%%:*}")"
		[ "$got" = "$expected" ] || say "/dev/shm/gpuarb has $got, not $expected"
	done
fi

[ "$bad" = 0 ] || exit 1
echo "systemd: the units are understood and closed, the directories have their rights"
