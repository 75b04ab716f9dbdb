#!/bin/sh
# The preload can be loaded into any program, and a program that does not use CUDA does not notice it: no symbol newer
# than glibc 2.17, no other library, no file opened, no descriptor, no output, a few system calls at start.
# Usage: preload_loads.sh LIBRARY [symbols]   (symbols: look only at these)
set -u
lib=$(readlink -f "$1")
bad=0
say() {
	echo "preload: $*" >&2
	bad=$((bad + 1))
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

objdump -T "$lib" >"$work/symbols"
newest=$(grep -o 'GLIBC_[0-9.]*' "$work/symbols" | sed 's/GLIBC_//' | sort -uV | tail -n 1)
[ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -n 1)" = 2.17 ] ||
	say "it needs GLIBC_$newest: $(grep "GLIBC_$newest" "$work/symbols" | awk '{print $NF}' | tr '\n' ' ')"
needed=$(objdump -p "$lib" | awk '$1 == "NEEDED" && $2 != "libc.so.6" && $2 != "libdl.so.2" && $2 !~ /^ld-linux/ {print $2}')
[ -z "$needed" ] || say "it needs $needed"
# Before glibc 2.34 these symbols were in libpthread, which a program need not load, so they may only be weak.
strong=$(awk '/\*UND\*/ && $0 !~ / w / {print $NF}' "$work/symbols" |
	grep -E '^(pthread_(create|join|detach|key_|once|setspecific|getspecific|kill|sigmask|cond_timed|rwlock|spin|cancel|timedjoin)|sem_|timer_|dl[a-z]+$)' |
	grep -v '^dl_iterate_phdr$')
[ -z "$strong" ] || say "strong references to what libc did not have before 2.34: $strong"

if [ "${2:-}" = symbols ]; then
	[ "$bad" = 0 ] || exit 1
	exit 0
fi

same_files() {
	name=$1
	shift
	strace -f -e trace=openat,open,socket,connect,memfd_create -o "$work/without" "$@" >"$work/out1" 2>&1
	[ -s "$work/without" ] || say "strace did not work"
	strace -f -E LD_PRELOAD="$lib" -e trace=openat,open,socket,connect,memfd_create -o "$work/with" "$@" \
		>"$work/out2" 2>&1
	for f in without with; do
		grep -v ENOENT "$work/$f" | grep -oE '(openat|open|socket|connect|memfd_create)\([^)]*"[^"]*"|socket\([^)]*' |
			grep -vE '\.pyc|__pycache__|/tmp/' | sort >"$work/$f.opened"
	done
	more=$(diff "$work/without.opened" "$work/with.opened" | grep '^>' | grep -v "$lib")
	[ -z "$more" ] || say "$name opens more with it: $more"
	cmp -s "$work/out1" "$work/out2" || say "$name prints something else with it"
}
if command -v strace >/dev/null; then
	same_files bash bash -c 'echo hello; ls / >/dev/null'
	same_files sleep sleep 0.01
	command -v git >/dev/null && same_files git git --version
	command -v python3 >/dev/null && same_files python3 python3 -c 'import json, ctypes; print(json.dumps([1]))'
else
	echo "preload: no strace here; what programs open was not compared"
fi

# A set-user-id program does not load the preload from this directory at all; an ordinary program keeps its
# descriptors.
LD_PRELOAD=$lib sh -c 'ls /proc/self/fd' >"$work/fd1" 2>&1
sh -c 'ls /proc/self/fd' >"$work/fd2" 2>&1
cmp -s "$work/fd1" "$work/fd2" || say "it leaves a descriptor open"

# A program of another C library starts as well.
if command -v musl-gcc >/dev/null; then
	printf '#include <dlfcn.h>\nint main(void) { return !dlsym(RTLD_DEFAULT, "printf") || dlsym(RTLD_DEFAULT, "cuInit"); }\n' \
		>"$work/m.c"
	musl-gcc -o "$work/m" "$work/m.c" && { LD_PRELOAD=$lib "$work/m" || say "a musl program does not start with it"; }
fi

# The cost at start is counted, not timed: what the dynamic linker does for one more library, and a look at standard
# error. bench_start times it.
if command -v strace >/dev/null; then
	strace -o "$work/calls1" sleep 0
	strace -E LD_PRELOAD="$lib" -o "$work/calls2" sleep 0
	added=$(($(wc -l <"$work/calls2") - $(wc -l <"$work/calls1")))
	[ "$added" -le 25 ] || say "starting a program takes $added system calls more"
fi

[ "$bad" = 0 ] || exit 1
echo "preload: loads with glibc $newest and newer, needs libc alone, opens nothing, ${added:-some} system calls at start"
