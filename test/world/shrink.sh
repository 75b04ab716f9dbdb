#!/bin/sh
# Checks that --shrink finds a smaller world that still fails, with a mistake planted in a copy of the product.
# shrink.sh DIRECTORY MUTATION MAKE...: DIRECTORY gets the copy; MAKE builds build/world in it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=$1 mutation=$2
shift 2
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
find "$dir" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
if [ ! -d "$dir/build" ] && [ -d "$dir/../obj-world" ]; then
	mkdir -p "$dir/build" && cp -a "$dir/../obj-world" "$dir/build/"
fi
(cd "$root" && git ls-files -co --exclude-standard | tar -cf - -T -) | tar -xf - -C "$dir"
patch -d "$dir" -p1 -s -N --no-backup-if-mismatch <"$here/mutations/$mutation.patch"
(cd "$dir" && eval "$*") >"$dir/build.out" 2>&1 || { tail -n 20 "$dir/build.out"; exit 1; }
kind=$(sed -n 's/^Worlds: //p' "$here/mutations/$mutation.patch" | head -n 1)

# A world must fail, and --shrink must print options with which a smaller world fails.
found=$("$dir/build/world" "--$kind" --seeds 1..10000 --minutes 2 --shrink 2>/dev/null | grep ' instead of ') || {
	echo "shrink: nothing smaller was found of $mutation" >&2
	exit 1
}
echo "shrink: $mutation: $found"
options=$(echo "$found" | sed 's/^world: //; s/ fails after.*//')
steps=$(echo "$found" | sed 's/.*fails after \([0-9]*\) steps instead of \([0-9]*\)/\1 \2/')
[ "${steps% *}" -lt "${steps#* }" ] || { echo "shrink: that is not shorter" >&2; exit 1; }
# shellcheck disable=SC2086 # several options
if "$dir/build/world" "--$kind" $options >/dev/null 2>&1; then
	echo "shrink: with $options it does not fail" >&2
	exit 1
fi
