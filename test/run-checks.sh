#!/bin/bash
# run-checks.sh TARGET...: makes them one after the other, says what each of them is, and ends with the first that
# fails. Anything that takes time says so while it does.
set -u
cd "$(dirname "$0")/.." || exit 1
n=0
for target in "$@"; do
	n=$((n + 1))
	what=$(grep -hE "^$target:.*## " Makefile ./*/rules.mk ./*/*/rules.mk ./*/*.mk 2>/dev/null | sed -n '1s/.*## //p')
	echo "== $n of $#: $target${what:+: $what}"
	began=$SECONDS
	if ! ${MAKE:-make} --no-print-directory "$target"; then
		echo "check: $target failed after $((SECONDS - began)) s; 'make $target' runs it alone" >&2
		exit 1
	fi
	took=$((SECONDS - began))
	[ $took -lt 5 ] || echo "   ($took s)"
done
echo "check: all $# passed in $SECONDS s"
