#!/bin/sh
# Two jobs on one GPU: a large one, and a small one whose limit is raised while both run.
# usage: two-jobs.sh LARGE_COMMAND SMALL_COMMAND   (each is run by sh -c)
set -eu
large=${1:?usage: two-jobs.sh LARGE_COMMAND SMALL_COMMAND}
small=${2:?usage: two-jobs.sh LARGE_COMMAND SMALL_COMMAND}

gpuarb-run --account large --core 60 -- sh -c "$large" &
gpuarb-run --account small --core 20 -- sh -c "$small" &

sleep 1
gpuarb-top --once
gpuarb-set --account small core=40
gpuarb-top --explain small
wait
