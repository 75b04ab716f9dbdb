#!/bin/bash
# Runs a real cluster of one node on the loopback interface: jobs with shards on the simulated GPU. What each job got
# by the GPU's own books must fit its shards, tasks of a step share them, and killed jobs leave nothing. Usage:
# slurm.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=slurm
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs slurmctld slurmd munged srun jq
[ "$(id -u)" = 0 ] || skip "only root can start slurmd"

nothing_queued() { [ -z "$(squeue -h 2>/dev/null)" ]; }
ended() { [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]; }
idle() { [ "$(sinfo -h -o %t 2>/dev/null)" = idle ]; }
daemons_gone() { ! kill -0 "${daemons[@]}" 2>/dev/null; }

# munged wants a path that other users cannot write to.
work=$(mktemp -d /tmp/gpuarb-slurm-XXXXXX) && chmod 755 "$work" || exit 1
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) && chmod 755 "$shm" || exit 1
daemons=()
# shellcheck disable=SC2317,SC2329
finish() {
	if [ "${#daemons[@]}" -gt 0 ]; then
		scancel --user=root 2>/dev/null
		until_true 10 nothing_queued
		kill -TERM "${daemons[@]}" 2>/dev/null
		until_true 5 daemons_gone || kill -KILL "${daemons[@]}" 2>/dev/null
		# Processes that Slurm started have our slurm.conf in their environment.
		for process in /proc/[0-9]*; do
			grep -qsz "^SLURM_CONF=$work/" "$process/environ" && [ "${process##*/}" != $$ ] && kill -KILL "${process##*/}"
		done 2>/dev/null
	fi
	rm -rf "$work" "$shm"
}
trap finish EXIT

make --no-print-directory -s BUILD="$build" DESTDIR= PREFIX="$work/usr" SYSCONFDIR="$work/etc" install || exit 1
mkdir -p "$work/etc/gpuarb" "$work/state" "$work/spool" "$work/out"
export GPUSIM_DIR="$shm/gpu" GPUARB_DIR="$shm/arb" GPUARB_CONF=/dev/null GPUSIM_MODE=share
export SLURM_CONF="$work/slurm.conf"
unset GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_MEM_LIMIT GPUARB_LOG LD_PRELOAD
cat >"$work/etc/gpuarb/slurm.conf" <<END
SHARDS_PER_GPU=10
DIR=$GPUARB_DIR
RUN=$work/run
# Only here the Prolog finds the simulated GPU.
export LD_LIBRARY_PATH=$build/sim GPUSIM_DIR=$GPUSIM_DIR
END
host=$(hostname -s)
cat >"$SLURM_CONF" <<END
ClusterName=gpuarb
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=5
$(grep -E '^(GresTypes|SelectType|SelectTypeParameters|TaskProlog|TaskEpilog|Prolog|Epilog|PrologFlags)=' "$work/usr/share/gpuarb/slurm/slurm.conf")
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 Gres=gpu:1,shard:10
PartitionName=all Nodes=node1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
# Without a GPU any character device will do.
sed 's|/dev/nvidia0|/dev/zero|' "$work/usr/share/gpuarb/slurm/gres.conf" >"$work/gres.conf"
dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 2>/dev/null && chmod 400 "$work/munge.key"
munged --foreground --force --key-file="$work/munge.key" --socket="$work/munge.socket" --pid-file="$work/munge.pid" \
	--seed-file="$work/munge.seed" --log-file="$work/munge.log" >/dev/null 2>&1 &
daemons+=($!)
until_true 10 test -S "$work/munge.socket"
slurmctld -D -i >"$work/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D -N node1 >"$work/slurmd.out" 2>&1 &
daemons+=($!)
if ! until_true 30 idle; then
	tail -n 5 "$work"/*.log "$work"/*.out >&2
	say "the cluster does not come up: $(sinfo -h -o '%t %E' 2>&1)"
	exit 1
fi
echo "slurm: $(slurmctld -V), one node, 10 shards"

# Prints the variables that a task gets.
told() { srun -Q "$@" env </dev/null | grep -E '^(GPUARB_[A-Z_]*|LD_PRELOAD)=' | sort | tr '\n' ' '; }
got=$(told --gres=shard:3 -n 1)
case "$got" in
"GPUARB_ACCOUNT=slurm-"*".0 GPUARB_CONF=/dev/null GPUARB_CORE_LIMIT=30 GPUARB_DIR=$GPUARB_DIR GPUARB_MEM_LIMIT=4915Mi LD_PRELOAD=$work/usr/lib/gpuarb/libgpuarb-preload.so "*) ;;
*) say "three shards of ten, and the task is told: $got" ;;
esac
got=$(told -n 1)
[ "$got" = "GPUARB_CONF=/dev/null GPUARB_DIR=$GPUARB_DIR " ] || say "a job without a GPU is told: $got"
got=$(told --gres=gpu:1 -n 1)
case "$got" in
*LIMIT*) say "a job with the whole GPU is told: $got" ;;
*GPUARB_ACCOUNT=slurm-*LD_PRELOAD=*) ;;
*) say "a job with the whole GPU is not seen: $got" ;;
esac
# A batch script, a step of it with other shards, a step that names none, and a job for the whole GPU that the script
# submits: each gets its own variables, and the library once.
show_told='env | grep -E "^(GPUARB_(ACCOUNT|[A-Z]*_LIMIT)|LD_PRELOAD)=" | sort | xargs'
sbatch --wait --gres=shard:3 -n 1 --output="$work/out/script" --wrap="$show_told
srun -Q --gres=shard:1 -n 1 sh -c '$show_told'
srun -Q -n 1 sh -c '$show_told'
sbatch --gres=gpu:1 -n 1 --output=$work/out/whole --wrap='$show_told'" >/dev/null
library="LD_PRELOAD=$work/usr/lib/gpuarb/libgpuarb-preload.so"
until_true 20 nothing_queued || say "these do not end: $(squeue -h -o '%j %T %R')"
got=$(sed -E 's/slurm-[0-9]+/slurm-N/' "$work/out/script" "$work/out/whole" | grep GPUARB)
[ "$got" = "GPUARB_ACCOUNT=slurm-N.0 GPUARB_CORE_LIMIT=30 GPUARB_MEM_LIMIT=4915Mi $library
GPUARB_ACCOUNT=slurm-N.0 GPUARB_CORE_LIMIT=10 GPUARB_MEM_LIMIT=1638Mi $library
GPUARB_ACCOUNT=slurm-N.1 GPUARB_CORE_LIMIT=30 GPUARB_MEM_LIMIT=4915Mi $library
GPUARB_ACCOUNT=slurm-N.0 $library" ] || say "a script, its steps and a job for the whole GPU are told: $got"

# Three jobs at once: 2, 3 and 5 shards, the last with two tasks that share them. Each task notes its pid.
cat >"$work/task" <<END
#!/bin/sh
echo \$\$ >>"$work/out/\$1.pids"
LD_LIBRARY_PATH=$build/sim exec $build/simload --kernel-us=50 --duration=\$2 --memory=64
END
chmod 755 "$work/task"
job() { # NAME SHARDS TASKS SECONDS
	sbatch --parsable --job-name="$1" --gres="shard:$2" --ntasks="$3" --output="$work/out/$1.out" \
		--wrap="srun --gres=shard:$2 -n $3 $work/task $1 $4"
}
# Prints what gpuarb-top shows of the jobs with these numbers.
left_of() { # JOB|JOB...
	"$build/gpuarb-top" --json --once | jq -c --arg jobs "^slurm-($1)[.]" '[.gpus[].accounts[] | select(.name | test($jobs)) | .processes[].pid]'
}
# A step that is killed leaves nothing to the rest of its job. No other process is on the GPU to clean up.
steps=$(sbatch --parsable --gres=shard:4 -n 1 --output="$work/out/steps.out" --wrap="srun --gres=shard:4 -n 1 $work/task steps 60; sleep 60")
step_runs() { [ "$(left_of "$steps")" != "[]" ]; }
step_gone() { ! step_runs; }
until_true 20 step_runs || say "the step does not run: $(cat "$work/out/steps.out")"
scancel --signal=KILL "$steps.0"
until_true 20 step_gone || say "a killed step left $(left_of "$steps")"
[ "$(squeue -h -j "$steps" -o %T)" = RUNNING ] || say "the job of the killed step is $(squeue -h -j "$steps" -o %T)"
scancel "$steps"
until_true 20 nothing_queued || say "these do not end: $(squeue -h -o '%j %T %R')"
rm -f "$work/out/steps.pids"

small=$(job small 2 1 60)
middle=$(job middle 3 1 60)
double=$(job double 5 2 60)
all_started() { [ "$(cat "$work"/out/*.pids 2>/dev/null | wc -l)" = 4 ]; }
until_true 30 all_started || say "not all tasks have started: $(squeue -h -o '%j %T %R')"
# All shards are taken: one more job has to wait.
waits=$(job waits 1 1 1)
books() { LD_LIBRARY_PATH="$build/sim" "$build/sim/gpusim-report" --json; }
sleep 2
books >"$work/before"
sleep "${SLURM_SECONDS:-8}"
books >"$work/after"
[ "$(squeue -h -j "$waits" -o %T)" = PENDING ] || say "an eleventh shard was given away: $(squeue -h -o '%j %T')"

# got NAME: prints hundredths of a percent of the GPU's time
got() {
	# shellcheck disable=SC2016
	share "$work/before" "$work/after" '.pid as $p | $pids | index($p)' --argjson pids "[$(paste -sd, "$work/out/$1.pids")]"
}
printf 'slurm: %-8s %6s %8s %9s\n' job shards tasks attained
for expected in small:2:1 middle:3:1 double:5:2; do
	IFS=: read -r name shards tasks <<<"$expected"
	attained=$(got "$name")
	printf 'slurm: %-8s %6d %8d %9s\n' "$name" "$shards" "$tasks" "$(percent "$attained")"
	near "$attained" $((shards * 10)) || say "$name has $shards shards of ten and got $(percent "$attained")"
done

# Limits hold while other jobs come and go: one job is killed with its task, one is cancelled, the third ends.
show() { "$build/gpuarb-set" --show 2>/dev/null; }
"$build/gpuarb-set" --account "slurm-$small.0" core=25 request=5 weight=50 members=12345 || say "an administrator cannot change a job's limit"
show | grep -q "account slurm-$small.0: core=25" || say "what an administrator set for a job is not shown"
scancel --signal=KILL "$small"
scancel "$double"
kill -9 "$(cat "$work/out/middle.pids")"
until_true 30 ended "$small,$double,$middle" || say "these jobs do not end: $(squeue -h -o '%j %T %R')"
no_limit() { ! show | grep -q "slurm-$small"; }
until_true 10 no_limit || say "a limit of a job that has ended is still there"
# The Epilog has cleaned up, so nothing is left to clean.
reclaimed=$("$build/gpuarb-watchdog" --once)
[ -z "$reclaimed" ] || say "jobs that were killed left: $reclaimed"
left=$(left_of "$small|$middle|$double")
[ "$left" = "[]" ] || say "gpuarb-top still shows $left"
until_true 20 nothing_queued
[ -s "$work/out/waits.pids" ] || say "the job that waited did not run afterwards: $(cat "$work/out/waits.out")"
alive=$(books | jq '[.devices[0].processes[] | select(.alive)] | length')
[ "$alive" = 0 ] || say "$alive processes are still on the GPU"
memory=$(books | jq '.devices[0].memory_used_bytes')
[ "$memory" = 0 ] || say "$memory bytes of the GPU are still taken"
until_true 10 idle || say "the node is $(sinfo -h -o '%t %E') now"

[ "$bad" = 0 ] || exit 1
echo "slurm: shards are kept, tasks share them, killed jobs leave nothing"
