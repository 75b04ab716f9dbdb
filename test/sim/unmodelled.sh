#!/bin/sh
# Lists the names of the driver that only answer "not supported": no file replaces their weak default.
# usage: unmodelled.sh libcuda.so.1             prints the list
#        unmodelled.sh libcuda.so.1 README.md   puts it between the marks in the file
#        unmodelled.sh -c libcuda.so.1 README.md  fails if the file's list is not the library's
set -eu
check=
if [ "$1" = -c ]; then
	check=1
	shift
fi

list() {
	nm -D --defined-only "$1" | awk '$2 == "W" && $3 ~ /^cu/ { print $3 }' | LC_ALL=C sort |
		awk '{ printf "%s%s", (NR > 1 ? ", " : ""), $1; n = NR } END { printf ".\n\n%d names.\n", n }' | fold -s -w 118 | sed 's/ *$//'
}

if [ $# = 1 ]; then
	list "$1"
	exit 0
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
{
	sed '/<!-- unmodelled -->/q' "$2"
	list "$1"
	sed -n '/<!-- end -->/,$p' "$2"
} >"$new"
if [ -z "$check" ]; then
	cat "$new" >"$2"
elif ! cmp -s "$new" "$2"; then
	echo "$2 does not list what $1 does not model; 'make sim-readme' writes the list anew:" >&2
	diff "$2" "$new" >&2
	exit 1
fi
