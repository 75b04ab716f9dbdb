#!/bin/sh
# Checks that the same seeds give the same hashes: in every run, with gcc and clang, without and with optimisation.
# compilers.sh BUILD-DIRECTORY SEEDS
set -u
dir=$1 seeds=$2 bad=0
hashes() {
	"$1" --seeds "1..$seeds" --hash | grep '^seed'
}
build() {
	mkdir -p "$dir/$1"
	${MAKE:-make} --no-print-directory CC="$2" OPT="$3" BUILD="$dir/$1" "$dir/$1/world" >"$dir/$1.log" 2>&1 || {
		echo "compilers: $2 $3 cannot build it, see $dir/$1.log" >&2
		exit 1
	}
	hashes "$dir/$1/world" >"$dir/$1.hashes"
}
build gcc "${GCC:-gcc}" -O2
hashes "$dir/gcc/world" >"$dir/again.hashes"
build gcc-O0 "${GCC:-gcc}" -O0
if command -v clang >/dev/null; then
	build clang "${CLANG:-clang}" -O2
	build clang-O0 "${CLANG:-clang}" -O0
fi
for f in "$dir"/*.hashes; do
	cmp -s "$dir/gcc.hashes" "$f" || {
		echo "compilers: $f differs from $dir/gcc.hashes: $(diff "$dir/gcc.hashes" "$f" | sed -n 2p)" >&2
		bad=1
	}
done
[ "$bad" = 0 ] || exit 1
echo "compilers: $seeds seeds have the same hashes in $(ls "$dir"/*.hashes | wc -l) runs"
