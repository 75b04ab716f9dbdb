#!/bin/bash
# Plants deliberate mistakes in copies of the product, one at a time: how many seeds does the world need to find each?
# mutations.sh DIRECTORY MAKE...: DIRECTORY gets the copies; MAKE is the command that builds build/world in one.
# ONLY=pattern takes some of them, SEEDS (10000) and MINUTES (2) bound the search for each, AT_ONCE (one for each
# processor) run at a time. Before that the unchanged product runs for BASE_SECONDS (40).
# test/world/mutations/README.md says what a mutation looks like.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export SEEDS=${SEEDS:-10000} MINUTES=${MINUTES:-2} ONLY=${ONLY:-} AT_ONCE=${AT_ONCE:-$(nproc)}

now_ms() { date +%s%3N; }

# look WORLD KIND FIRST LAST SECONDS OUT: sets `seed` and `sentence`; `seed` is empty if nothing was found.
look() {
	local status
	seed='' sentence=''
	timeout $(($5 + 60)) "$1" "--$2" --hash --seeds "$3..$4" \
		--minutes "$(awk "BEGIN { print $5 / 60 }")" >"$6" 2>&1
	status=$?
	[ $status != 0 ] || return
	seed=$(sed -n 's/^world: seed \([0-9]*\) failed.*/\1/p' "$6" | head -n 1)
	if [ -n "$seed" ]; then
		sentence=$(grep -a -A 1 '^world: seed' "$6" | sed -n '2s/^ *//p')
		return
	fi
	# No word of it: the world itself has ended, or never ends.
	seed=$(sed -n 's/^seed \([0-9]*\): .*/\1/p' "$6" | tail -n 1)
	seed=$((${seed:-$(($3 - 1))} + 1))
	[ $status = 124 ] && sentence="this seed never ends" || sentence="the program crashed, status $status"
}

# Runs the unchanged product. Seeds that fail here are no findings and are left out.
base() {
	local kind=$1 first=1 end=$((SECONDS + $2)) out="$dir/base-$1.out" left
	: >"$dir/base-$kind.bad"
	while left=$((end - SECONDS)) && [ $left -gt 0 ] && [ $first -le "$SEEDS" ]; do
		look "$dir/base/build/world" "$kind" $first "$SEEDS" $left "$out"
		if [ -z "$seed" ]; then
			first=$(sed -n 's/^seed \([0-9]*\): .*/\1/p' "$out" | tail -n 1)
			first=$((${first:-0} + 1))
			break
		fi
		echo "the product as it is fails at seed $seed of --$kind, which is left out: $sentence"
		echo "$seed" >>"$dir/base-$kind.bad"
		first=$((seed + 1))
	done
	echo "the product as it is passes $((first - 1 - $(wc -l <"$dir/base-$kind.bad"))) seeds of --$kind"
	echo $((first - 1)) >"$dir/base-$kind.reach"
}

base_fails() {
	grep -qx "$2" "$dir/base-$1.bad" && return 0
	[ "$2" -gt "$(cat "$dir/base-$1.reach")" ] || return 1
	! timeout 120 "$dir/base/build/world" "--$1" --seed "$2" >/dev/null 2>&1
}

# say SENTENCE: prints a row of the table, with how many mutations are done.
say() {
	local ready left
	echo "$1" >"$dir/$name.row"
	ready=$(find "$dir" -maxdepth 1 -name '*.row' | wc -l)
	left=$((($(now_ms) - began) * (total - ready) / ready / 1000))
	printf '%2d/%d, %2d:%02d left  %-30s %s\n' "$ready" "$total" $((left / 60)) $((left % 60)) "$name" "$1"
}

one() {
	local dir=$1 began=$2 total=$3 patch=$4 name kind tree start ms
	name=$(basename "$patch" .patch)
	kind=$(sed -n 's/^Worlds: //p' "$patch" | head -n 1)
	tree="$dir/$name"
	rm -rf "$tree" && cp -a "$dir/base" "$tree" || exit 1
	if ! patch -d "$tree" -p1 -F 1 -s -N --no-backup-if-mismatch <"$patch" >"$dir/$name.out" 2>&1; then
		say "ERROR: the product has changed, $name.patch no longer applies; see $dir/$name.out"
		return
	fi
	if ! (cd "$tree" && eval "$MAKE_WORLD") >"$dir/$name.out" 2>&1; then
		say "ERROR: it does not compile; see $dir/$name.out"
		return
	fi
	start=$(now_ms)
	local first=1 end=$((SECONDS + $(awk "BEGIN { print int($MINUTES * 60) }"))) left
	while left=$((end - SECONDS)) && [ $left -gt 0 ]; do
		look "$tree/build/world" "$kind" $first "$SEEDS" $left "$dir/$name.out"
		[ -n "$seed" ] || break
		base_fails "$kind" "$seed" || break
		first=$((seed + 1)) seed=''
	done
	ms=$(($(now_ms) - start))
	if [ -n "$seed" ]; then
		say "$(printf 'seed %5d, %5d.%d s: %s' "$seed" $((ms / 1000)) $((ms % 1000 / 100)) "${sentence:0:140}")"
		rm -rf "$tree"
	else
		say "NOT FOUND in $((ms / 1000)) s; $(grep -a '^world:' "$dir/$name.out" | tail -n 1)"
	fi
}

if [ "${1:-}" = --one ]; then
	shift
	dir=$1
	one "$@"
	exit 0
fi
[ $# -ge 2 ] || { echo "usage: mutations.sh DIRECTORY MAKE..." >&2; exit 2; }
mkdir -p "$1" || exit 1
dir=$(cd "$1" && pwd)
shift
export MAKE_WORLD="$*"
mapfile -t patches < <(printf '%s\n' "$here"/mutations/*.patch | grep -E -- "$ONLY")
[ ${#patches[@]} -gt 0 ] || { echo "mutations: no name matches '$ONLY'" >&2; exit 2; }

# Objects are kept from run to run, with their times, so that only changed files are compiled.
rm -f "$dir"/*.row "$dir"/*.out "$dir"/*.bad "$dir"/*.reach
if [ ! -d "$dir/base/build" ] && [ -d "$dir/../obj-world" ]; then
	mkdir -p "$dir/base/build" && cp -a "$dir/../obj-world" "$dir/base/build/" || exit 1
fi
mkdir -p "$dir/base" && find "$dir/base" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} + || exit 1
(cd "$root" && git ls-files -co --exclude-standard | tar -cf - -T - | tar -xf - -C "$dir/base") || exit 1
(cd "$dir/base" && eval "$MAKE_WORLD") >"$dir/base.out" 2>&1 || { tail -n 20 "$dir/base.out"; exit 1; }

echo "mutations: ${#patches[@]}, $AT_ONCE at a time, at most $SEEDS seeds and $MINUTES minutes each"
for kind in segments programs; do
	base $kind "${BASE_SECONDS:-40}" &
	[ "$AT_ONCE" -gt 1 ] || wait
done
wait
printf '%s\n' "${patches[@]}" |
	xargs -d '\n' -P "$AT_ONCE" -n 1 bash "$here/mutations.sh" --one "$dir" "$(now_ms)" "${#patches[@]}"
found=$(cat "$dir"/*.row | grep -c '^seed ')
echo "mutations: $found of ${#patches[@]} found, in $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ "$found" = ${#patches[@]} ]
