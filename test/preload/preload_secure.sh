#!/bin/sh
# A set-user-id program takes nothing from the environment: neither where segments are, nor where to write, nor its
# limits. This needs root: /etc and /dev/shm are covered in a mount namespace of its own.
# Usage: preload_secure.sh BUILD
set -u
build=$(readlink -f "$1")
if [ "${2:-}" != inside ]; then
	if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
		echo "secure: skipped: it needs root and a mount namespace"
		exit 0
	fi
	exec unshare -m "$0" "$build" inside
fi
work=$(mktemp -d /var/tmp/gpuarb-secure-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
mount --make-rprivate / 2>/dev/null || { echo "secure: skipped: mounts cannot be made private here"; exit 0; }
mount -t tmpfs tmpfs /dev/shm || { echo "secure: skipped: no tmpfs can be mounted here"; exit 0; }
case $(findmnt -no OPTIONS -T "$work" 2>/dev/null) in *nosuid*)
	echo "secure: skipped: $work is mounted nosuid"
	exit 0
	;;
esac
chmod 755 "$work"
mkdir -m 777 "$work/gpu" "$work/lib" "$work/theirs"
chmod 1777 /dev/shm
cp "$build/libgpuarb-preload.so" "$build/sim/libcuda.so.1" "$work/lib/"
cp "$build/test/preload/secure" "$work/program"
chown 65534 "$work/program" && chmod 4755 "$work/program"
chmod 755 "$work/lib" "$work/lib"/*
# /etc has nothing else in it here; the machine's own /etc is not touched.
cp /etc/ld.so.cache "$work/" 2>/dev/null
mount -t tmpfs -o mode=755 tmpfs /etc || { echo "secure: skipped: /etc cannot be covered here"; exit 0; }
[ ! -e "$work/ld.so.cache" ] || cp "$work/ld.so.cache" /etc/
echo "$work/lib/libgpuarb-preload.so" >/etc/ld.so.preload

env GPUSIM_DIR="$work/gpu" GPUARB_DIR="$work/theirs/arb" GPUARB_CONF="$work/theirs/conf" \
	GPUARB_LOG="$work/theirs/log" GPUARB_CORE_LIMIT=nonsense GPUARB_ON_ERROR=closed GPUARB_ACCOUNT='a b' \
	GPUARB_LIMITS_FILE="$work/theirs/limits" GPUARB_DISABLE=1 "$work/program" "$work/lib/libcuda.so.1" 2>"$work/err"
status=$?
rm /etc/ld.so.preload
bad=0
[ $status = 0 ] || { echo "secure: exit status $status: $(cat "$work/err")" >&2; bad=1; }
[ -z "$(ls -A "$work/theirs")" ] || { echo "secure: it wrote where it was told: $(ls -AR "$work/theirs")" >&2; bad=1; }
[ ! -s "$work/err" ] || { echo "secure: it said: $(cat "$work/err")" >&2; bad=1; }
[ -n "$(ls /dev/shm/gpuarb/state 2>/dev/null)" ] || { echo "secure: it did not join the default segment" >&2; bad=1; }
[ "$bad" = 0 ] || exit 1
echo "secure: a set-user-id program takes nothing from the environment"
