#!/bin/sh
# Compares preload/hooks/hooks.def with NVIDIA's headers: the compiler compares prototypes and versions, and calls of
# the driver that are in no table here are listed. Without a toolkit it compares with our own table of all calls.
# Usage: preload_headers.sh WORKDIR
set -eu
work=$1
cc=${CC:-cc}
top=$(dirname "$0")/../..
mkdir -p "$work"
bad=0
say() {
	echo "hooks: $*" >&2
	bad=$((bad + 1))
}

sed -n 's/^HOOK(\([A-Za-z0-9_]*\), .*/\1/p' "$top/preload/hooks/hooks.def" | sort >"$work/hooked"
[ -z "$(uniq -d "$work/hooked")" ] || say "twice in the table: $(uniq -d "$work/hooked")"

# Rows are sorted by base and version, because the look-up depends on it.
perl -ne 'if (/^HOOK\((\w+), (\w+), (\d+), (\w+),/) {
	print "hooks: $1 is out of order\n" if defined $b && ($2 lt $b || ($2 eq $b && $3 < $v));
	print "hooks: $1 does not begin with $2\n" if $1 !~ /^$2(_v\d)?(_ptsz|_ptds)?$/;
	print "hooks: $1 is not $4\n" if ($1 =~ /_ptsz$/) != ($4 eq "PTSZ") || ($1 =~ /_ptds$/) != ($4 eq "PTDS");
	($b, $v) = ($2, $3) }' "$top/preload/hooks/hooks.def" >"$work/order"
[ ! -s "$work/order" ] || say "$(cat "$work/order")"

real=
for d in "${CUDA_HOME:-/nonexistent}/include" /usr/local/cuda/include /usr/include; do
	if [ -z "$real" ] && grep -qs 'define CUDA_VERSION' "$d/cuda.h"; then
		real=$d
	fi
done
if [ -n "$real" ]; then
	printf '#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n' >"$work/real.h"
	# Rows that are newer than the header are compared with our own list below.
	version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$real/cuda.h")
	awk -F', ' -v newest="$version" '!/^HOOK\(/ || $3 + 0 <= newest' "$top/preload/hooks/hooks.def" >"$work/hooks.def"
	cat >"$work/check.c" <<'EOC'
#include "real.h"
#include <cudaTypedefs.h>
#define SAME(a, b, text) _Static_assert(__builtin_types_compatible_p(a, b), text);
#define HOOK(symbol, base, version, variant, category, params, args, facts) \
	SAME(__typeof__(symbol), CUresult params, #symbol " has another prototype") \
	VERSION_##variant(symbol, base, version)
#define VERSION_LEGACY(symbol, base, version) SAME(__typeof__(&symbol), PFN_##base##_v##version, #symbol)
#define VERSION_PTSZ(symbol, base, version) SAME(__typeof__(&symbol), PFN_##base##_v##version##_ptsz, #symbol)
#define VERSION_PTDS(symbol, base, version) SAME(__typeof__(&symbol), PFN_##base##_v##version##_ptds, #symbol)
#include "hooks.def"
EOC
	$cc -std=gnu11 -fsyntax-only -I"$work" -I"$top" -I"$real" "$work/check.c" >"$work/errors" 2>&1 || true
	wrong=$(grep 'error:' "$work/errors" |
		grep -oE 'PFN_cu[A-Za-z0-9_]*|cu[A-Z][A-Za-z0-9_]* has another prototype|failed: "cu[A-Za-z0-9_]*"' | sort -u || true)
	[ -z "$wrong" ] || say "not as in $real/cuda.h: $wrong"
	$cc -E -P -I"$real" "$work/real.h" >"$work/declarations"
	sed -n 's/^CU_CALL(\([A-Za-z0-9_]*\), (\(.*\)), ([^()]*))$/CUresult \1(\2);/p' "$top/include/cuda_abi/newer.def" >>"$work/declarations"
	where="$real/cuda.h"
else
	$cc -E -P -I"$top/include" "$top/include/cuda_abi.h" >"$work/declarations"
	where="include/cuda_abi.h"
fi

perl -0777 -ne 'while (/\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;/g) { my ($n, $p) = ($1, $2); $p =~ s/\s+/ /g; print "$n\t$p\n" }' "$work/declarations" |
	sort -u >"$work/declared"
cut -f1 "$work/declared" | sort -u >"$work/names"
missing=$(comm -23 "$work/hooked" "$work/names")
[ -z "$missing" ] || say "hooked, but not declared in $where: $missing"

# Calls that use a stream, make or free memory, or are a newer generation of a hooked call, and are not hooked.
grep '^cu' "$top/test/preload/preload_unhooked.txt" | sort >"$work/known"
awk -F'\t' '$2 ~ /CUstream / || $1 ~ /Launch|Memcpy|Memset|Alloc|Free|Prefetch|Synchronize|MemPool|Ctx/ {print $1}' "$work/declared" |
	sort -u | comm -23 - "$work/hooked" | comm -23 - "$work/known" >"$work/new"
[ ! -s "$work/new" ] || say "new in $where, to be hooked or named in test/preload/preload_unhooked.txt: $(tr '\n' ' ' <"$work/new")"
stale=$(comm -12 "$work/known" "$work/hooked")
[ -z "$stale" ] || say "named as not hooked, and hooked: $stale"

# Every row has the prototype of our own header.
cat >"$work/own.c" <<'EOC'
#include "cuda_abi.h"
#define HOOK(symbol, base, version, variant, category, params, args, facts) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(symbol), CUresult params), #symbol);
#include HOOKS
EOC
$cc -std=gnu11 -fsyntax-only -DHOOKS="\"$(cd "$top" && pwd)/preload/hooks/hooks.def\"" -I"$top/include" "$work/own.c" ||
	say "not as in include/cuda_abi.h"

[ "$bad" = 0 ] || exit 1
echo "hooks: $(wc -l <"$work/hooked") of $(wc -l <"$work/names") calls agree with $where, the rest is known"
