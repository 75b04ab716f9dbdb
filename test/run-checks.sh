#!/bin/bash
# run-checks.sh BUILD TARGET...: makes them one after the other, each with a deadline outside of itself (deadline.c), and
# says what each of them is. One that fails does not keep the others from running; what it said is repeated at the end,
# and kept in BUILD/check/TARGET.log. The last line is "N passed, N failed", with ", N skipped" if there are any.
#
#   DEADLINE=600                     seconds for each target
#   DEADLINES="check-asan=900 ..."   more, for those that need it
set -u
MAKEFLAGS=${MAKEFLAGS:-}
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
# make -n, whose first word are the options of one letter, shows what would be done.
case "${MAKEFLAGS%% *}" in -* | *=*) ;; *n*) echo "make $*"; exit 0 ;; esac
logs=$build/check
mkdir -p "$logs" && rm -f "$logs"/*.log || exit 1
export CHECK_SKIPPED="$logs/skipped"

limit() { # TARGET
	local pair
	for pair in ${DEADLINES:-}; do
		[ "${pair%%=*}" != "$1" ] || { echo "${pair#*=}"; return; }
	done
	echo "${DEADLINE:-600}"
}

# The lines that say what went wrong, in the order in which they came, and of what Criterion shows with one of them, such
# as a screen, the beginning; without any, the last lines.
sentences() { # LOG
	local wrong='not true:|^\[FAIL\]|^\[----\]|^\[ERR|error:|ERROR: |WARNING: Thread|SUMMARY: |runtime error|^deadline: |^    pid [0-9]|^[a-z_-]+: |^[A-Za-z]*(Error|Exception)\b|\*\*\*'
	local found
	found=$(grep -aE "$wrong" "$1" | grep -avE 'skipped:|not tried|\*\*\* .*Error [0-9]+$' |
		awk '/^\[----\]  / { if (++more > 5) next } !/^\[----\]  / { more = 0 } 1' | tail -n 30)
	[ -n "$found" ] || found=$(tail -n 15 "$1")
	cut -c 1-300 <<<"$found" | sed 's/^/    /'
}

passed=0
failed=()
skipped=()
told=0
times=()
n=0
for target in "$@"; do
	n=$((n + 1))
	what=$(grep -hE "^$target:.*## " Makefile ./*/rules.mk ./*/*/rules.mk ./*/*.mk 2>/dev/null | sed -n '1s/.*## //p')
	echo "== $n of $#: $target${what:+: $what}"
	began=$SECONDS
	rm -f "$CHECK_SKIPPED"
	"$build/test/deadline" -l "$logs/$target.log" "$(limit "$target")" "$target" ${MAKE:-make} --no-print-directory "$target"
	status=$?
	took=$((SECONDS - began))
	times+=("$took $target")
	if [ $status = 0 ] && [ -e "$CHECK_SKIPPED" ]; then
		skipped+=("$target")
	elif [ $status = 0 ]; then
		passed=$((passed + 1))
	else
		failed+=("$target $took $status")
		echo "check: $target failed after $took s"
	fi
	# Somebody wants it to end: not only this target.
	case $status in 129 | 130 | 131 | 143) told=$status; break ;; esac
	[ $took -lt 5 ] || [ $status != 0 ] || echo "   ($took s)"
done

echo
echo "check: $n parts in $SECONDS s; the slowest:$(printf '%s\n' "${times[@]}" | sort -rn | head -n 5 | while read -r took target; do printf ' %s %d s,' "$target" "$took"; done | sed 's/,$//')"
for target in "$@"; do
	grep -aE 'skipped:|not tried' "$logs/$target.log" 2>/dev/null | sort -u | sed "s/^/check: $target: /"
done
for one in "${failed[@]}"; do
	read -r target took status <<<"$one"
	case $status in
	124) how="was not done in time: killed after $took s" ;;
	129 | 130 | 131 | 143) how="was interrupted after $took s" ;;
	*) how="failed after $took s" ;;
	esac
	echo
	echo "check: $target $how. It said (all of it: $logs/$target.log; 'make $target' runs it alone):"
	sentences "$logs/$target.log"
done
echo
echo "$passed passed, ${#failed[@]} failed$([ ${#skipped[@]} = 0 ] || echo ", ${#skipped[@]} skipped")"
[ $told = 0 ] || exit $told
[ ${#failed[@]} = 0 ]
