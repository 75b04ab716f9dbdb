#!/bin/bash
# Runs the units under a real systemd: the packages are installed in a copy of this system, which is booted in a
# container. The watchdog, with all its restrictions, cleans up after a killed client, the export writes, and the
# segments outlive the units.
# Usage: boot.sh BUILD   (after `make deb`)
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=boot
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs systemd-nspawn
[ "$(id -u)" = 0 ] || skip "it needs root"
if [ -z "${T_INSIDE:-}" ]; then
	unshare --mount true 2>/dev/null || skip "mount namespaces are forbidden here"
	T_INSIDE=1 exec unshare --mount --propagation private test/deploy/boot.sh "$build"
fi
work=$(mktemp -d /tmp/gpuarb-boot-XXXXXX) || exit 1
# shellcheck disable=SC2317,SC2329
finish() {
	umount -R "$work/root" 2>/dev/null
	umount "$work" 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT
mount -t tmpfs none "$work" || skip "nothing can be mounted here"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root" || skip "overlays are not to be had here"
root=$work/root
mkdir -p "$root/test"
cp -r "$build/sim" "$build/simload" "$build"/deb/gpuarb_*.deb "$root/test/"
mount -t proc proc "$root/proc"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
chroot "$root" dpkg -i "/test/$(basename "$build"/deb/gpuarb_*.deb)" >"$work/log" 2>&1 || {
	tail -n 5 "$work/log" >&2
	echo "boot: the package cannot be installed" >&2
	exit 1
}
umount "$root/proc"

# NVML is the simulated one, and another device stands in the place of NVIDIA's.
mkdir -p "$root/var/lib/prometheus/node-exporter"
for unit in node watchdog; do
	mkdir -p "$root/etc/systemd/system/gpuarb-$unit.service.d"
	printf '[Service]\nEnvironment=LD_LIBRARY_PATH=/test/sim GPUSIM_DIR=/dev/shm/gpusim\n' \
		>"$root/etc/systemd/system/gpuarb-$unit.service.d/test.conf"
done
cat >"$root/etc/systemd/system/gpuarb-test.service" <<'END'
[Unit]
Wants=dbus.service systemd-logind.service gpuarb-node.service gpuarb-watchdog.service
After=dbus.service systemd-logind.service gpuarb-node.service gpuarb-watchdog.service
[Service]
Type=oneshot
ExecStart=-/bin/bash /test/inside.sh
StandardOutput=file:/test/report
StandardError=inherit
ExecStopPost=/bin/systemctl --no-block exit
END
# Prints a sentence for each thing that is wrong, and "done" at the end.
cat >"$root/test/inside.sh" <<'END'
gpu=GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0
until_true() { for _ in $(seq 100); do "$@" && return 0; sleep 0.1; done; return 1; }
[ "$(systemctl is-active gpuarb-node)" = active ] || echo "gpuarb-node: $(systemctl status gpuarb-node 2>&1)"
[ "$(systemctl is-active gpuarb-watchdog)" = active ] || echo "gpuarb-watchdog: $(systemctl status gpuarb-watchdog 2>&1)"
[ "$(stat -c '%a %U:%G' /dev/shm/gpuarb/state/$gpu)" = "660 root:gpuarb" ] || echo "the state segment is $(stat -c '%a %U:%G' /dev/shm/gpuarb/state/$gpu 2>&1)"
[ "$(stat -c '%a %U' /dev/shm/gpuarb/control/$gpu)" = "644 root" ] || echo "the control segment is $(stat -c '%a %U' /dev/shm/gpuarb/control/$gpu 2>&1)"
grep -q '"gpuarb.dev/gpu"' /run/cdi/gpuarb.json || echo "there is no spec in /run/cdi"

# The restrictions of the watchdog.
pid=$(systemctl show -p MainPID --value gpuarb-watchdog)
[ "$(ps -o user= -p "$pid")" = gpuarb ] || echo "the watchdog runs as $(ps -o user= -p "$pid")"
for line in 'CapEff:.0000000000000000' 'CapBnd:.0000000000000000' 'NoNewPrivs:.1' 'Seccomp:.2'; do
	grep -q "^$line" "/proc/$pid/status" || echo "the watchdog has $(grep "^${line%%:*}" "/proc/$pid/status")"
done
nsenter -t "$pid" -m touch /etc/x 2>/dev/null && echo "the watchdog could write to /etc"
nsenter -t "$pid" -m test -c /dev/nvidiactl || echo "the watchdog does not see the GPUs' devices, and NVML would not either"

# A user of the group is a client and is killed while it runs: only the watchdog is there to notice.
useradd -M -G gpuarb alice
mkdir -p /dev/shm/gpusim && chmod 777 /dev/shm/gpusim && chmod 666 /dev/shm/gpusim/* 2>/dev/null
# Other clients rely on this while the watchdog runs: utilisation from the driver.
systemctl restart gpuarb-watchdog
sampled() { gpuarb-top --json 2>/dev/null | grep -q '"usage_source": "nvml"'; }
until_true sampled || echo "the watchdog does not sample by NVML: $(gpuarb-top --json | grep usage_source)"
setpriv --reuid=alice --regid=alice --init-groups env LD_LIBRARY_PATH=/test/sim GPUSIM_DIR=/dev/shm/gpusim GPUARB_ACCOUNT=hers GPUARB_CORE_LIMIT=30 \
	LD_PRELOAD=/usr/lib/gpuarb/libgpuarb-preload.so /test/simload --kernel-us=50 --duration=60 >/dev/null 2>/test/err &
client=$!
joined() { gpuarb-top --json 2>/dev/null | grep -q '"name": "hers"'; }
until_true joined || echo "the client has not joined: $(cat /test/err)"
systemctl start gpuarb-export.service || echo "the export fails: $(journalctl -u gpuarb-export --no-pager | tail -n 5)"
grep -q '^gpuarb_account_limit_ratio{.*account="hers"} 0.3' /var/lib/prometheus/node-exporter/gpuarb.prom || echo "the export has not written the account"
{ kill -KILL $client; wait $client; } 2>/dev/null
cleaned() { journalctl -u gpuarb-watchdog --no-pager | grep -q 'slot 0 reclaimed: pid .* of account hers'; }
until_true cleaned || echo "the watchdog did not clean up: $(journalctl -u gpuarb-watchdog --no-pager | tail -n 5)"

# When a user's last session ends, logind removes that user's files in shared memory, also inside directories. So root
# makes the segments.
useradd -m -G gpuarb bob
su - bob -c 'touch /dev/shm/gpuarb/state/GPU-bob'
gone() { [ ! -e /dev/shm/gpuarb/state/GPU-bob ]; }
until_true gone || until_true gone || echo "logind has not removed a user's file: what the manual says of it is wrong"
[ -s /dev/shm/gpuarb/state/$gpu ] || echo "the segment went with a user"
# By then the watchdog has forgotten that file, which it could not look after.
sleep 2

# A user's unit with the adapter's drop-in is an account and keeps its share.
printf '[Service]\nUser=alice\nEnvironment=LD_LIBRARY_PATH=/test/sim GPUSIM_DIR=/dev/shm/gpusim GPUSIM_MODE=share\nExecStart=/test/simload --kernel-us=1000 --duration=600\n' >/etc/systemd/system/training.service
install -D -m 644 /usr/share/gpuarb/adapters/systemd/50-gpuarb.conf /etc/systemd/system/training.service.d/50-gpuarb.conf
systemctl daemon-reload && systemctl start training || echo "a unit with the drop-in does not start: $(systemctl status training 2>&1)"
shown() { gpuarb-set --show 2>/dev/null | grep -q 'in force for training: core=30 mem=4Gi'; }
until_true shown || echo "a unit with the drop-in has not joined: $(gpuarb-set --show | grep 'in force') $(journalctl -u training --no-pager | tail -n 3)"
used() { LD_LIBRARY_PATH=/test/sim GPUSIM_DIR=/dev/shm/gpusim /test/sim/gpusim-report --json | tr ',' '\n' | sed -nE 's/.*"(device_ns|now_ns)":([0-9]+).*/\1 \2/p' | awk '$1 == "now_ns" {now = $2} $1 == "device_ns" {sum += $2} END {printf "%.0f %.0f\n", sum, now}'; }
# It must be within one point. Less may be the machine's fault, if the load gets no processor: then it is measured
# again.
for _ in 1 2 3 4 5 6; do
	read -r sum now < <(used); sleep 20; read -r sum2 now2 < <(used)
	attained=$(((sum2 - sum) * 10000 / (now2 - now)))
	echo "$attained" >/test/attained
	[ "$attained" -lt 2900 ] || break
done
{ [ "$attained" -le 3100 ] && [ "$attained" -ge 2900 ]; } || echo "a unit with a limit of 30 got $attained hundredths of a percent"
systemctl stop training

# The segments belong to all users: they stay when the units stop.
systemctl stop gpuarb-watchdog gpuarb-node
[ -s /dev/shm/gpuarb/state/$gpu ] || echo "the segment went with the units"
# After a reboot the driver comes up later than the unit, which is then started again.
sed -i 's|/test/sim|/late|' /etc/systemd/system/gpuarb-node.service.d/test.conf
systemctl daemon-reload
rm -rf /dev/shm/gpuarb/state/* /dev/shm/gpuarb/control/*
systemctl start --no-block gpuarb-node
tried() { [ "$(systemctl show -p SubState --value gpuarb-node)" = auto-restart ]; }
until_true tried || echo "without a driver gpuarb-node is $(systemctl status gpuarb-node 2>&1)"
ln -s /test/sim /late
up() { [ "$(systemctl is-active gpuarb-node)" = active ] && [ -s /dev/shm/gpuarb/state/$gpu ]; }
until_true up || until_true up || echo "a driver that comes late is not noticed: $(systemctl status gpuarb-node 2>&1)"
systemctl start gpuarb-export.timer && systemctl list-timers gpuarb-export.timer --no-pager | grep -q gpuarb-export.service || echo "the timer does not run"
failed=$(systemctl list-units --failed --no-legend --no-pager 'gpuarb-*')
[ -z "$failed" ] || echo "failed: $failed $(systemctl status --no-pager 'gpuarb-*')"
echo done
END
timeout 300 systemd-nspawn --register=no --keep-unit --link-journal=no --private-network --bind=/dev/null:/dev/nvidiactl -D "$root" --boot systemd.unit=gpuarb-test.service \
	</dev/null >"$work/console" 2>&1
report=$(cat "$root/test/report" 2>/dev/null)
if [ "$report" != "done" ]; then
	[ -n "$report" ] || tail -n 10 "$work/console" >&2
	echo "boot: ${report:-the copy did not boot}" >&2
	exit 1
fi
echo "boot: a unit with the drop-in, limit 30: attained $(percent "$(cat "$root/test/attained")")"
echo "boot: under $(systemctl --version | sed -n '1s/ (.*//p'): node, also where the driver comes late, watchdog without capabilities, export and timer"
