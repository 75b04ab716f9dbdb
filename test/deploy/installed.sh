#!/bin/sh
# Installs into an empty directory, checks what is there, builds a program against it, runs the tools from it, and
# uninstalls it. Usage: installed.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
CC=${CC:-cc}
root=$(mktemp -d /tmp/gpuarb-install-XXXXXX) || exit 1
arb=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
trap 'rm -rf "$root" "$arb"' EXIT
bad=0
say() {
	echo "install: $*" >&2
	bad=$((bad + 1))
}
make_it() { make --no-print-directory -s BUILD="$build" DESTDIR="$root" PREFIX=/opt/g LIBDIR=/opt/g/lib/some "$@"; }

# Files of others stay.
mkdir -p "$root/opt/g/bin" && echo other >"$root/opt/g/bin/other"
make_it install || say "make install failed"
prefix=$root/opt/g

for file in bin/gpuarb-run bin/gpuarb-set bin/gpuarb-watchdog bin/gpuarb-node bin/gpuarb-cdi bin/gpuarb-runtime bin/gpuarb-replay \
	lib/gpuarb/libgpuarb-preload.so lib/some/libgpuarb.so.1 lib/some/libgpuarb.so lib/some/libgpuarb.a \
	lib/some/pkgconfig/gpuarb.pc lib/systemd/system/gpuarb-watchdog.service \
	lib/tmpfiles.d/gpuarb.conf lib/gpuarb/slurm/task-prolog share/man/man1/gpuarb-run.1 share/man/man3/gpuarb.3 \
	lib/python3/dist-packages/gpuarb.py include/gpuarb.h share/doc/gpuarb/deploy.md; do
	[ -e "$prefix/$file" ] || say "there is no $file"
done
for tool in "$prefix"/bin/gpuarb-*; do
	[ -s "$prefix/share/man/man1/$(basename "$tool").1" ] || say "$(basename "$tool") has no man page"
	"$tool" --version | grep -q "^$(basename "$tool") [0-9]" || say "$(basename "$tool") does not say its version"
	[ -s "$prefix/share/bash-completion/completions/$(basename "$tool")" ] || say "$(basename "$tool") has no completion"
	"$tool" --help >/dev/null || say "$(basename "$tool") --help fails"
done
[ -x "$prefix/share/gpuarb/kubernetes/setup-nodes" ] || say "setup-nodes cannot be run"
runs=$(find "$prefix/share/doc" -type f \( -perm /111 -o -name setup-nodes \)) && [ -z "$runs" ] || say "programs are among the documents: $runs"
dull=$(find "$prefix/share/gpuarb" "$prefix/lib/gpuarb" -type f ! -perm -111 -exec sh -c 'head -c 2 "$1" | grep -q "^#!"' sh {} \; -print)
[ -z "$dull" ] || say "programs cannot be run: $dull"
[ "$(find "$root" -name _gpuarb | wc -l)" = 1 ] || say "zsh's completion is there $(find "$root" -name _gpuarb | wc -l) times"
left=$(grep -rlE '@[A-Z]+@' "$root" --include='*' -I) && say "places were not filled in: $left"
wrong=$(grep -rl "$root\|$build" "$root" -I) && say "the directory of the build got into: $wrong"

# The library has its name and versioned symbols, and exports nothing but what is declared.
readelf -d "$prefix/lib/some/libgpuarb.so" | grep -q 'SONAME.*\[libgpuarb\.so\.1\]' || say "the SONAME is not libgpuarb.so.1"
nm -D --defined-only "$prefix/lib/some/libgpuarb.so" | awk '$2 != "A" { print $3 }' | sort >"$arb/exported"
grep -v '@@GPUARB_1' "$arb/exported" && say "symbols without their version"
sed 's/@@.*//' "$arb/exported" >"$arb/names"
[ -e "$prefix/include/gpuarb" ] && say "headers that are not for programs were installed"
tr '\n' ' ' <"$prefix/include/gpuarb.h" | grep -oE 'GPUARB_PUBLIC [^;(]*\(' | grep -oE 'gpuarb_[a-z_0-9]+ ?\($' | tr -d ' (' | sort >"$arb/declared"
diff "$arb/declared" "$arb/names" >"$arb/diff" || say "declared (<) and exported (>) differ: $(grep '^[<>]' "$arb/diff" | tr '\n' ' ')"

# The simulated GPU, so that the driver knows the GPU that is asked for.
export GPUSIM_DIR="$arb/gpu"
mkdir "$arb/gpu"

# A program finds the library by pkg-config, links it either way, and runs.
cat >"$arb/program.c" <<'END'
#include <gpuarb.h>
#include <stdio.h>
int main(void)
{
	struct gpuarb_request request = {"default", GPUARB_NO_WAIT, {12000, 0}, {0, 0}};
	struct gpuarb_hint hint = {1, 1};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct gpuarb_status status;
	int r = gpuarb_acquire("GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0", &request, &lease);
	if (r != GPUARB_OK)
		return fprintf(stderr, "acquire: %d %s\n", r, gpuarb_error_text()), 1;
	r = gpuarb_status("GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0", &status);
	if (r != 0 || status.own_leases != 1)
		return fprintf(stderr, "status: %d %s\n", r, gpuarb_error_text()), 1;
	if (gpuarb_hint("GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0", &hint) != 0)
		return fprintf(stderr, "hint: %s\n", gpuarb_error_text()), 1;
	gpuarb_cancel(&lease);
	return gpuarb_release(&lease);
}
END
cp "$arb/program.c" "$arb/program.cc"
PKG_CONFIG_LIBDIR="$prefix/lib/some/pkgconfig:/usr/lib/$($CC -print-multiarch)/pkgconfig:/usr/lib/pkgconfig:/usr/share/pkgconfig"
export PKG_CONFIG_LIBDIR
pc() { PKG_CONFIG_SYSROOT_DIR="$root" pkg-config "$@" gpuarb; }
[ "$(pkg-config --modversion gpuarb)" = "$("$prefix/bin/gpuarb-run" --version | cut -d' ' -f2)" ] ||
	say "gpuarb.pc says another version than the tools"
[ "$(pkg-config --variable=preload gpuarb)" = /opt/g/lib/gpuarb/libgpuarb-preload.so ] || say "gpuarb.pc names another preload"
export GPUARB_DIR="$arb/segments" GPUARB_CONF=/dev/null
# shellcheck disable=SC2046
if $CC $(pc --cflags) -o "$arb/dynamic" "$arb/program.c" $(pc --libs); then
	LD_LIBRARY_PATH="$prefix/lib/some:$build/sim" "$arb/dynamic" || say "a program with the shared library fails"
	readelf -V "$arb/dynamic" | grep -q GPUARB_1 || say "a program does not ask for the version of the symbols"
else
	say "a program cannot be linked with the shared library"
fi
# shellcheck disable=SC2046
if ! $CC $(pc --cflags) -o "$arb/static" "$arb/program.c" -L"$prefix/lib/some" -l:libgpuarb.a -l:libinih.a -lpthread ||
	! LD_LIBRARY_PATH="$build/sim" "$arb/static"; then
	say "a program with the static library fails"
fi

# arbiter.conf(5) is there and has every setting.
man -l "$prefix/share/man/man5/arbiter.conf.5" 2>"$arb/err" | grep -q carryover_percent || say "there is no arbiter.conf.5 that names the settings: $(cat "$arb/err")"

# The example of gpuarb(3) compiles without a warning and runs: a task, and a task of a class that skips.
man -l "$prefix/share/man/man3/gpuarb.3" >/dev/null 2>"$arb/err" || say "gpuarb.3 cannot be formatted: $(cat "$arb/err")"
awk '/^\.EX/ {n++; next} /^\.EE/ {n += 0.5} n == 1' "$prefix/share/man/man3/gpuarb.3" | sed 's/\\e/\\/g; s/\\-/-/g' >"$arb/example.c"
grep -q '^int main' "$arb/example.c" || say "gpuarb.3 has no example"
gpu=GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0
"$prefix/bin/gpuarb-set" --gpu $gpu --class repair priority=10 mode=skip || say "a class cannot be added"
# shellcheck disable=SC2046
if $CC -Wall -Wextra -Werror $(pc --cflags) -o "$arb/example" "$arb/example.c" $(pc --libs); then
	said=$(GPUARB_GPU=$gpu LD_LIBRARY_PATH="$prefix/lib/some:$build/sim" timeout 60 "$arb/example" 2>&1) || say "the example of gpuarb.3 fails: $said"
	echo "$said" | grep -qx translated && echo "$said" | grep -qxE 'repaired|repair: not now, reason [1-4]' || say "the example of gpuarb.3 says: $said"
else
	say "the example of gpuarb.3 cannot be compiled"
fi

# It compiles from C++ as well, without a warning.
if command -v "${CXX:-c++}" >/dev/null; then
	# shellcheck disable=SC2046
	if ! ${CXX:-c++} -std=c++11 -Wall -Wextra -Wpedantic -Werror $(pc --cflags) -o "$arb/cpp" "$arb/program.cc" $(pc --libs) ||
		! LD_LIBRARY_PATH="$prefix/lib/some:$build/sim" "$arb/cpp"; then
		say "a C++ program fails"
	fi
fi

# The tools find the library where it was installed.
"$prefix/bin/gpuarb-run" --dry-run -- true | grep -q "^LD_PRELOAD=$prefix/bin/../lib/gpuarb/libgpuarb-preload.so" ||
	"$prefix/bin/gpuarb-run" --dry-run -- true | grep -q "^LD_PRELOAD=$prefix/lib/gpuarb/libgpuarb-preload.so" ||
	say "the installed gpuarb-run does not find the library"
"$prefix/bin/gpuarb-watchdog" --once || say "the installed watchdog fails"
# The simulated GPU is installed as well, for programs of any kind.
said=$(timeout 60 "$prefix/bin/gpuarb-run" --sim --account tried --core 40 -- "$build/simload" --kernel-us=50 --launches=200 --duration=50 2>&1) ||
	say "gpuarb-run --sim fails after make install: $said"
echo "$said" | grep -q '"completed":200' || say "gpuarb-run --sim ran nothing: $said"
"$prefix/bin/gpuarb-top" --history 2>&1 | grep -q tried || say "a program on the simulated GPU was no client of it"

# It is installed over itself; a running program keeps the file that it has.
ln "$prefix/lib/gpuarb/libgpuarb-preload.so" "$root/mapped"
make_it install || say "make install over an installation failed"
[ "$(stat -c %h "$root/mapped")" = 1 ] || say "the library was written into, not replaced"
rm "$root/mapped"

make_it uninstall || say "make uninstall failed"
rest=$(cd "$root" && find . -type f -o -type l)
[ "$rest" = ./opt/g/bin/other ] || say "make uninstall left: $rest"
[ -d "$prefix/lib/gpuarb" ] && say "make uninstall left lib/gpuarb"
make_it PREFIX=relative install 2>/dev/null && say "a relative PREFIX was taken"

[ "$bad" = 0 ] || exit 1
echo "install: files, links, versions of symbols, pkg-config, a second time, and nothing left behind"
