#!/bin/bash
# run-checks.sh TARGET...: makes them one after the other, says what each of them is, and ends with the first that
# fails. On a terminal the seconds are counted while one of them is silent.
set -u
cd "$(dirname "$0")/.." || exit 1

run() { # TARGET
	if [ ! -t 1 ]; then
		${MAKE:-make} --no-print-directory "$1"
		return
	fi
	${MAKE:-make} --no-print-directory "$1" 2>&1 | while :; do
		if IFS= read -r -t 1 line; then
			printf '\r\033[K%s\n' "$line"
		elif [ $? -gt 128 ]; then
			printf '\r\033[K   %d s' $((SECONDS - began))
		else
			printf '\r\033[K%s' "$line"
			break
		fi
	done
	return "${PIPESTATUS[0]}"
}

n=0
for target in "$@"; do
	n=$((n + 1))
	what=$(grep -hE "^$target:.*## " Makefile ./*/rules.mk ./*/*/rules.mk ./*/*.mk 2>/dev/null | sed -n '1s/.*## //p')
	echo "== $n of $#: $target${what:+: $what}"
	began=$SECONDS
	if ! run "$target"; then
		echo "check: $target failed after $((SECONDS - began)) s; 'make $target' runs it alone" >&2
		exit 1
	fi
	took=$((SECONDS - began))
	[ $took -lt 5 ] || echo "   ($took s)"
done
echo "check: all $# passed in $SECONDS s"
