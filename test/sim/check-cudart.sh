#!/bin/sh
# Builds cudart_client.cu with nvcc, once for each default stream, and runs it on the simulated GPU.
set -eu
sim=$(cd "$1" && pwd)
here=$(dirname "$0")

nvcc=
for n in "${CUDA_HOME:-/nonexistent}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
	if [ -z "$nvcc" ] && [ -x "$n" ]; then
		nvcc=$n
	fi
done
if [ -z "$nvcc" ]; then
	echo "cudart: skipped, because there is no nvcc here to build a CUDA program with"
	exit 0
fi
if ! "$nvcc" --version | grep -q 'release 13\.'; then
	echo "cudart: skipped, because $nvcc is not of CUDA 13, whose programs want libcudart.so.13"
	exit 0
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for stream in legacy per-thread; do
	"$nvcc" -cudart shared -default-stream $stream -Wno-deprecated-gpu-targets -o "$dir/client" "$here/runtime/cudart_client.cu"
	mkdir "$dir/$stream"
	out=$(LD_LIBRARY_PATH=$sim GPUSIM_DIR=$dir/$stream timeout 60 "$dir/client")
	launches=$(GPUSIM_DIR=$dir/$stream "$sim/gpusim-report" --json | sed 's/.*"processes":\[[^]]*"launches":\([0-9]*\).*/\1/')
	# 3 computing kernels twice, 10 opaque kernels, 2 and 1 in graphs, 1 with attributes. The kernel with an
	# invalid shape never runs.
	if [ "$launches" != 20 ]; then
		echo "cudart: $stream: the device counted $launches launches instead of 20" >&2
		exit 1
	fi
	echo "cudart: $stream default stream: $out, $launches launches"
done
