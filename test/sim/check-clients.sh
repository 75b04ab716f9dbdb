#!/bin/sh
# Runs programs of others, unchanged, on the simulated GPU and compares their output with the ground truth.
# A program that cannot run here is skipped with a sentence; any difference is a failure.
# Usage: check-clients.sh SIM [PRELOAD]   (PRELOAD: a library that is preloaded into them)
set -u
sim=$(cd "$1" && pwd)
preload=${2:+$(readlink -f "$2")}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
load=
failed=0

cleanup() {
	[ -z "$load" ] || kill "$load" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

pass() { echo "clients: $*${preload:+, also with the preload}"; }
skip() { echo "clients: skipped $*"; }
fail() {
	echo "clients: FAILED $*" >&2
	failed=1
}

# Each client gets a simulation of its own, so that the figures contain no other program.
simulation() {
	mkdir -p "$work/$1/home"
	GPUSIM_DIR=$work/$1
	export GPUSIM_DIR
}
on_gpu() {
	LD_LIBRARY_PATH=$sim${toolkit:+:$toolkit} LD_PRELOAD=$preload GPUARB_DIR=$GPUSIM_DIR/arb GPUARB_CONF=/dev/null \
		HOME=$GPUSIM_DIR/home timeout 120 "$@"
}
# Prints the sum of a figure over all processes of the first device.
truth() {
	"$sim/gpusim-report" --json | tr '{' '\n' | sed -n '/"serial"/s/.*"'"$1"'":\([0-9]*\).*/\1/p' |
		awk '{ n += $1 } END { printf "%d\n", n }'
}

have() { command -v "$1" >/dev/null; }
get() { have "$1" || "$here/../install-deps.sh" "$1" >/dev/null 2>&1 || true; }

check_ffmpeg() {
	get ffmpeg
	if ! have ffmpeg; then
		skip "ffmpeg, because it is not installed and apt could not get it"
		return
	fi
	if ! ffmpeg -hide_banner -filters 2>/dev/null | grep -q hwupload_cuda; then
		skip "ffmpeg, because this build of it has no hwupload_cuda"
		return
	fi
	source='testsrc2=duration=2:size=640x360:rate=30'
	simulation ffmpeg
	want=$(ffmpeg -v error -f lavfi -i $source -vf format=nv12 -f md5 - 2>&1)
	got=$(on_gpu ffmpeg -v error -init_hw_device cuda=cu:0 -filter_hw_device cu -f lavfi -i $source \
		-vf format=nv12,hwupload_cuda,hwdownload,format=nv12 -f md5 - 2>&1)
	if [ -n "$want" ] && [ "$got" = "$want" ] && [ "$(truth copied_bytes)" -ge 41472000 ]; then
		pass "ffmpeg uploads and downloads 60 frames without a change ($got)"
	else
		fail "ffmpeg: $got instead of $want, $(truth copied_bytes) bytes copied"
	fi

	if ! ffmpeg -hide_banner -filters 2>/dev/null | grep -q scale_cuda; then
		skip "ffmpeg's scale_cuda, because this build does not have it"
		return
	fi
	simulation ffmpeg-scale
	got=$(on_gpu ffmpeg -v error -init_hw_device cuda=cu:0 -filter_hw_device cu -f lavfi -i $source \
		-vf format=nv12,hwupload_cuda,scale_cuda=320:180,hwdownload,format=nv12 -f md5 - 2>&1)
	case $got in
	MD5=*) [ "$(truth launches)" -ge 60 ] && pass "ffmpeg's scale_cuda launches $(truth launches) kernels" && return ;;
	esac
	fail "ffmpeg's scale_cuda: $got, $(truth launches) launches"
}

find_nvrtc() {
	for d in "${CUDA_HOME:-/nonexistent}/lib64" /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/lib/x86_64-linux-gnu; do
		if [ -e "$d/libnvrtc.so" ]; then
			echo "$d"
			return
		fi
	done
}

# hashcat gets an unknown hash, so that it searches until its time is over. Its options need a device of moderate width.
hashcat_run() {
	GPUSIM_SMS=16 GPUSIM_KERNEL_US=500 on_gpu hashcat --backend-ignore-opencl --self-test-disable --force -m 0 -a 3 \
		-O --potfile-disable --restore-disable --runtime=8 -n 512 -u 32 -T 512 --status --status-timer=2 \
		--machine-readable 0123456789abcdef0123456789abcdef '?a?a?a?a?a?a?a?a' 2>&1
}

# Prints the nth number behind a word in hashcat's last status line.
field() { printf '%s\n' "$out" | sed -n "s/.*$1[^0-9]*\([0-9.]*\).*/\1/p" | tail -n 1; }

check_hashcat() {
	get hashcat
	if ! have hashcat; then
		skip "hashcat, because it is not installed and apt could not get it"
		return
	fi
	toolkit=$(find_nvrtc)
	if [ -z "$toolkit" ]; then
		skip "hashcat, because its CUDA backend compiles with NVRTC and no CUDA toolkit was found"
		return
	fi
	simulation hashcat
	out=$(hashcat_run)
	toolkit=
	speed=$(field SPEED)
	# hashcat measures its kernels with events: half a millisecond each, as set for the simulation.
	kernel_ms=$(field EXEC_RUNTIME)
	if [ "${speed:-0}" -gt 0 ] && [ "$(truth launches)" -ge 1000 ] &&
		awk "BEGIN { exit !(${kernel_ms:-0} >= 0.5 && ${kernel_ms:-0} < 0.6) }"; then
		pass "hashcat compiles with NVRTC, launches $(truth launches) kernels and measures $kernel_ms ms for each"
	else
		fail "hashcat: speed '$speed', $kernel_ms ms for a kernel of 0.5 ms, $(truth launches) launches"
		printf '%s\n' "$out" | tail -n 20 >&2
	fi
}

# Debian keeps some viewers in contrib. They are unpacked here, so that nothing is added to the system's
# sources and nothing that they would recommend (NVIDIA's own libraries) is installed.
contrib() {
	mkdir -p "$work/apt/lists/partial" "$work/contrib"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -v security | head -n 1)
	suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")
	key=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -n "$mirror" ] && [ -n "$suite" ] && [ -f $key ] || return 1
	echo "deb [signed-by=$key] $mirror $suite contrib" >"$work/apt/list"
	(
		cd "$work/apt" || exit 1
		o="-o Dir::Etc::sourcelist=$work/apt/list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$work/apt/lists -o APT::Sandbox::User=root"
		# shellcheck disable=SC2086
		apt-get $o update >/dev/null 2>&1 && apt-get $o download "$1" >/dev/null 2>&1 && dpkg -x "$1"_*.deb "$work/contrib"
	)
}

# A load for the viewers: a process that keeps the device busy and holds memory.
start_load() {
	simulation viewer
	LD_LIBRARY_PATH=$sim "$sim/../simload" --duration=60 --kernel-us=1000 --pattern=back --every=16 --memory=256 \
		>/dev/null 2>&1 &
	load=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ "$(truth launches)" -gt 20 ] && return 0
		sleep 0.5
	done
	return 1
}

check_nvtop() {
	get nvtop
	nvtop=$(command -v nvtop)
	if [ -z "$nvtop" ] && contrib nvtop; then
		nvtop=$work/contrib/usr/bin/nvtop
	fi
	if [ -z "$nvtop" ]; then
		skip "nvtop, because it is not installed and no contrib archive could be reached"
		return
	fi
	if "$nvtop" --help 2>&1 | grep -q -- '-s'; then
		out=$(on_gpu "$nvtop" -s 2>&1)
	elif have script && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
		out=$(TERM=xterm on_gpu script -qec "stty rows 40 cols 150; exec timeout 4 $nvtop -C -d 5" /dev/null \
			</dev/null 2>&1 | sed 's/\x1b\[[0-9;?]*[a-zA-Z]/ /g; s/\x1b[()][AB0]//g' | tr -d '\000-\010\016-\037')
	else
		skip "nvtop, because this version draws only on a terminal and none can be made here"
		return
	fi
	# The device's name, then a load in percent and used memory, as JSON or drawn.
	text=$(printf '%s' "$out" | tr '\n\r' '  ')
	util=$(printf '%s' "$text" | sed -n 's/.*GPU\[[^]]*[^0-9]\([0-9]\{1,3\}\)% *\].*/\1/p; s/.*"gpu_util": *"\([0-9]*\)%".*/\1/p' | head -n 1)
	used=$(printf '%s' "$text" | sed -n 's/.*MEM\[[^]]*[^0-9.]\([0-9.]*\)Gi\/.*/\1/p; s/.*"mem_util": *"\([0-9]*\)%".*/\1/p' | head -n 1)
	case $text in
	*"Simulated GPU"*)
		if [ "${util:-0}" -gt 50 ] && awk "BEGIN { exit !(${used:-0} > 0) }"; then
			pass "nvtop shows the device, $util % busy, memory in use ($used)"
			return
		fi
		;;
	esac
	fail "nvtop: load '$util', memory '$used' in: $(printf '%s' "$text" | head -c 600)"
}

check_pynvml() {
	if ! python3 -c '' 2>/dev/null; then
		skip "pynvml, because there is no python3"
		return
	fi
	if ! python3 -c 'import pynvml' 2>/dev/null; then
		contrib python3-pynvml
	fi
	# Without a directory of the simulation the path does not exist.
	out=$(PYTHONPATH=$work/contrib/usr/lib/python3/dist-packages on_gpu python3 - 2>&1 <<'EOF'
import sys
try:
    import pynvml as n
except ImportError:
    print("absent")
    sys.exit(0)
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
memory = n.nvmlDeviceGetMemoryInfo(d)
procs = n.nvmlDeviceGetComputeRunningProcesses(d)
print(n.nvmlDeviceGetUtilizationRates(d).gpu, memory.used, len(procs), sum(p.usedGpuMemory for p in procs))
EOF
	)
	if [ "$out" = absent ]; then
		skip "pynvml, because it is not installed and no contrib archive could be reached"
		return
	fi
	# shellcheck disable=SC2086
	set -- $out
	if [ $# = 4 ] && [ "$1" -le 100 ] && [ "$1" -gt 0 ] && [ "$2" -gt 0 ] && [ "$3" = 1 ] && [ "$4" = "$2" ]; then
		pass "pynvml sees one process with $2 bytes on a device that is $1 % busy"
	else
		fail "pynvml: '$out' (utilisation, used bytes, processes, their bytes)"
	fi
}

toolkit=
check_ffmpeg
check_hashcat
if start_load; then
	check_nvtop
	check_pynvml
else
	fail "the load for the viewers did not start"
fi
exit $failed
