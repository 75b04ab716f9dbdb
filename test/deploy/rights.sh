#!/bin/bash
# Which users may join, look, set limits and clean up: the table of tools/deploy/README.md, with three users, an
# administrators' group, root in a container, and root of a user namespace. Usage: rights.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=rights
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
[ "$(id -u)" = 0 ] || skip "only root can become other users"
tried=0
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) && chmod 755 "$shm" || exit 1
trap 'rm -rf "$shm"' EXIT
# Other users may not be allowed to read the directory of the build.
cp "$build"/gpuarb-{set,top,watchdog,node,run,cdi} "$build/libgpuarb-preload.so" "$build/simload" "$shm/"
cp -r "$build/sim" "$shm/sim"
export GPUARB_DIR="$shm/arb" GPUARB_CONF=/dev/null GPUSIM_DIR="$shm/gpu" HOME=/
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_LOG
gpu=GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0 own=GPU-00000000-0000-0000-0000-00000000000a

# The directories as systemd-tmpfiles makes them, with the group's number instead of its name.
members=61000 admins=61009
mkdir "$shm/gpu" && chmod 1777 "$shm/gpu"
while read -r kind path mode user group _; do
	[ "$kind" = d ] || continue
	path=$GPUARB_DIR${path#/dev/shm/gpuarb}
	mkdir -p "$path" && chown "$user:${group/gpuarb/$members}" "$path" && chmod "$mode" "$path"
done <tools/deploy/systemd/gpuarb.tmpfiles
"$shm/gpuarb-node" --gpu "$gpu" >/dev/null || say "gpuarb-node fails"
[ "$(stat -c '%a %u:%g' "$GPUARB_DIR/state/$gpu")" = "660 0:$members" ] || say "the state segment is $(stat -c '%a %u:%g' "$GPUARB_DIR/state/$gpu")"
[ "$(stat -c '%a %u' "$GPUARB_DIR/control/$gpu")" = "644 0" ] || say "the control segment is $(stat -c '%a %u' "$GPUARB_DIR/control/$gpu")"

member() { setpriv --reuid=61001 --regid=61001 --groups=$members "$@"; }
stranger() { setpriv --reuid=61002 --regid=61002 --clear-groups "$@"; }
setter() { setpriv --reuid=61003 --regid=61003 --groups=$members,$admins "$@"; }

join() { LD_LIBRARY_PATH="$shm/sim" LD_PRELOAD="$shm/libgpuarb-preload.so" "$@" "$shm/simload" --kernel-us=50 --launches=50; }
look() { "$@" "$shm/gpuarb-top" --once --json; }
set_it() { "$@" "$shm/gpuarb-set" --gpu "$gpu" --account web core=30; }
clean() { "$@" "$shm/gpuarb-watchdog" --once; }

# may USER WHAT / may_not USER WHAT SENTENCE
may() {
	tried=$((tried + 1))
	$2 "$1" >"$shm/out" 2>"$shm/err" || say "$1 may not $2: $(cat "$shm/err")"
	# A client that cannot join says so and runs.
	[ -s "$shm/err" ] && say "$1 may $2, but is told: $(cat "$shm/err")"
}
may_not() {
	tried=$((tried + 1))
	$2 "$1" >"$shm/out" 2>"$shm/err" && [ "$2" != join ] && say "$1 may $2"
	grep -qE "$3" "$shm/err" || say "$1 may not $2 and is told: $(cat "$shm/err")"
}

no_join="cannot open $GPUARB_DIR/state/$gpu: Permission denied"
no_set="only who may write .*/control may do that \\(Permission denied\\)"

# As installed: members of the group join, look and clean up; root sets limits.
root() { "$@"; }
for what in join look set_it clean; do may root $what; done
for what in join look clean; do may member $what; done
may_not member set_it "$no_set"
may_not stranger join "$no_join"
may_not stranger look 'Permission denied'
may_not stranger set_it "$no_set"
may_not stranger clean 'Permission denied'

# Every tool, and the preload in a program, tells a user outside the group the one command that helps.
printf 'root:x:0:\ngpuarb:x:%s:\n' $members >"$shm/group"
# shellcheck disable=SC2016
named() { unshare --mount --propagation private sh -c 'mount --bind "$0" /etc/group && exec "$@"' "$shm/group" setpriv --reuid=61002 --regid=61002 --clear-groups "$@"; }
run() { "$@" "$shm/gpuarb-run" --sim -- "$shm/simload" --kernel-us=50 --launches=50; }
run_closed() { GPUARB_ON_ERROR=closed run "$@"; }
run_mem() { "$@" "$shm/gpuarb-run" --sim --mem 1Gi -- "$shm/simload" --kernel-us=50 --launches=50; }
run_class() { "$@" env GPUARB_GPU="$gpu" "$shm/gpuarb-run" --sim --class default -- "$shm/simload" --kernel-us=50 --launches=50; }
show() { "$@" "$shm/gpuarb-set" --gpu "$gpu" --show; }
make_it() { "$@" "$shm/gpuarb-node" --gpu "$gpu"; }
told="members of the group gpuarb may: 'sudo adduser \\\$USER gpuarb', then log in again"
if named true 2>/dev/null; then
	for what in join look show clean run run_closed run_mem run_class make_it; do
		tried=$((tried + 1))
		$what named >"$shm/out" 2>&1
		grep -q "$told" "$shm/out" || say "who is not in the group may not $what and is told: $(cat "$shm/out")"
	done
	set_it named >"$shm/out" 2>&1
	grep -q "'sudo gpuarb-set' does" "$shm/out" || say "who may not set is told: $(cat "$shm/out")"
	# A user made the segment before the machine was set up.
	chown 61001:61001 "$GPUARB_DIR/state/$gpu" && chmod 600 "$GPUARB_DIR/state/$gpu"
	look named >"$shm/out" 2>&1
	grep -q "'sudo gpuarb-node --dir $GPUARB_DIR' gives it to the group gpuarb" "$shm/out" || say "of another user's segment one is told: $(cat "$shm/out")"
	# For a directory of one's own gpuarb-node makes no group.
	printf 'root:x:0:\n' >"$shm/group"
	look named >"$shm/out" 2>&1
	grep -q "'sudo groupadd --system gpuarb' makes a group, 'sudo gpuarb-node --dir $GPUARB_DIR'" "$shm/out" || say "where there is no group one is told: $(cat "$shm/out")"
	chown 0:$members "$GPUARB_DIR/state/$gpu" && chmod 660 "$GPUARB_DIR/state/$gpu"
else
	echo "rights: what who is not in the group is told was not tried, mount namespaces are forbidden here"
fi

# All users may look: segment_mode = 0664. (chmod changes a segment that exists already, and gpuarb-node gives the
# file of its locks the matching rights: users who may only look may not open that file.)
locks="$GPUARB_DIR/state/.$gpu.locks"
rights() {
	chmod "$1" "$GPUARB_DIR/state/$gpu" && "$shm/gpuarb-node" --gpu "$gpu" >/dev/null
	[ "$(stat -c '%a %u:%g' "$locks" 2>&1)" = "$2 0:$members" ] || say "with a segment of mode $1 its locks are $(stat -c '%a %u:%g' "$locks" 2>&1)"
}
rights 664 660
may stranger look
stranger cat "$locks" 2>/dev/null && say "who may only look may open the locks"
may_not stranger join "$no_join"
may_not stranger clean 'Permission denied'
# All users may join: 0666.
rights 666 666
may stranger join
may_not stranger set_it "$no_set"
rights 660 660

# Administrators who are not root: control_mode = 0664 and a group of their own.
chgrp $admins "$GPUARB_DIR/control/$gpu" && chmod 664 "$GPUARB_DIR/control/$gpu"
may setter set_it
may_not member set_it "$no_set"
chmod 644 "$GPUARB_DIR/control/$gpu"

# A member makes the segment of a GPU that has none; it belongs to the group. No member removes another's.
member "$shm/gpuarb-node" --gpu $own >/dev/null 2>&1
[ "$(stat -c '%a %u:%g' "$GPUARB_DIR/state/$own" 2>&1)" = "660 61001:$members" ] || say "a member's segment is $(stat -c '%a %u:%g' "$GPUARB_DIR/state/$own" 2>&1)"
[ "$(stat -c '%a %u:%g' "$GPUARB_DIR/state/.$own.locks" 2>&1)" = "660 61001:$members" ] || say "the locks of a member's segment are $(stat -c '%a %u:%g' "$GPUARB_DIR/state/.$own.locks" 2>&1)"
setter rm -f "$GPUARB_DIR/state/$own" "$GPUARB_DIR/state/.$own.locks" 2>/dev/null
[ -e "$GPUARB_DIR/state/$own" ] && [ -e "$GPUARB_DIR/state/.$own.locks" ] || say "a member has removed another's segment"
stranger touch "$GPUARB_DIR/state/GPU-mine" 2>/dev/null && say "a stranger makes files in the state directory"
member touch "$GPUARB_DIR/control/GPU-mine" 2>/dev/null && say "a member makes files in the control directory"
rm -f "$GPUARB_DIR/state/$own" "$GPUARB_DIR/state/.$own.locks"

# A container: root, but with a read-only control directory.
container() {
	# shellcheck disable=SC2016
	unshare --mount --propagation private sh -c 'mount --bind "$GPUARB_DIR/control" "$GPUARB_DIR/control" &&
		mount -o remount,bind,ro "$GPUARB_DIR/control" && exec "$@"' sh "$@"
}
if container true 2>/dev/null; then
	may container join
	may container look
	may_not container set_it 'only who may write .*/control may do that \(Read-only file system\)'
else
	echo "rights: containers were not tried, mount namespaces are forbidden here"
fi
# A container with a user namespace: root inside, an ordinary user outside.
guest() { stranger unshare --user --map-root-user "$@"; }
if [ "$(guest id -u 2>/dev/null)" = 0 ]; then
	may_not guest join "$no_join"
	may_not guest look 'Permission denied'
	may_not guest set_it "$no_set"
	may_not guest clean 'Permission denied'
else
	echo "rights: root of a user namespace was not tried, they are forbidden here"
fi

[ "$bad" = 0 ] || exit 1
echo "rights: $tried times somebody did, or was told why not"
