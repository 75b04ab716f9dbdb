#!/bin/bash
# run-checks.sh BUILD TARGET...: makes the targets, each with a deadline that another process enforces (deadline.c),
# and says what each is. A target that fails does not keep the others from running. Its output is repeated at the end
# and kept in BUILD/check/TARGET.log. The last line is "N passed, N failed", with ", N skipped" if there are any.
#
# The targets of BESIDE go first, AT_ONCE at a time, in the order of BESIDE; the output of each is shown when it is
# done. The others run alone, one after the other.
#
#   DEADLINE=600                     seconds for each target; up to four times as long while other processes wait for
#                                    a processor, where the kernel says so (PRESSURE=/proc/pressure/cpu)
#   DEADLINES="check-asan=900 ..."   more seconds for targets that need them
#   BESIDE="check-asan ..."          targets that may run at the same time
#   AT_ONCE=2                        how many of those; by default the number of CPUs, at most 4
set -u
MAKEFLAGS=${MAKEFLAGS:-}
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
# With make -n, where the first word has all options of one letter, it only shows what would be done.
case "${MAKEFLAGS%% *}" in -* | *=*) ;; *n*) echo "make $*"; exit 0 ;; esac
logs=$build/check
pressure=${PRESSURE-/proc/pressure/cpu}
mkdir -p "$logs" && rm -f "$logs"/* || exit 1

at_once=${AT_ONCE:-$(nproc)}
[ -n "${AT_ONCE:-}" ] || [ "$at_once" -le 4 ] || at_once=4
beside=() alone=()
for target in ${BESIDE:-}; do
	case " $* " in *" $target "*) beside+=("$target") ;; esac
done
[ "$at_once" -gt 1 ] || beside=()
for target in "$@"; do
	case " ${beside[*]} " in *" $target "*) ;; *) alone+=("$target") ;; esac
done

limit() { # TARGET
	local pair
	for pair in ${DEADLINES:-}; do
		[ "${pair%%=*}" != "$1" ] || { echo "${pair#*=}"; return; }
	done
	echo "${DEADLINE:-600}"
}

# Prints the lines that say what went wrong, in their order; of what Criterion shows with such a line, for example a
# screen, only the beginning; if there is no such line, the last lines.
sentences() { # LOG
	local wrong='not true:|^\[FAIL\]|^\[----\]|^\[ERR|error:|ERROR: |WARNING: Thread|SUMMARY: |runtime error|^deadline: |^    pid [0-9]|^[a-z_-]+: |^[A-Za-z]*(Error|Exception)\b|\*\*\*'
	local found
	found=$(grep -aE "$wrong" "$1" | grep -avE 'skipped:|not tried|\*\*\* .*Error [0-9]+$' |
		awk '/^\[----\]  / { if (++more > 5) next } !/^\[----\]  / { more = 0 } 1' | tail -n 30)
	[ -n "$found" ] || found=$(tail -n 15 "$1")
	cut -c 1-300 <<<"$found" | sed 's/^/    /'
}

passed=0 n=0 told=0
failed=() skipped=() times=()
all=$#

title() { # TARGET
	local what
	what=$(grep -hE "^$1:.*## " Makefile ./*/rules.mk ./*/*/rules.mk ./*/*.mk 2>/dev/null | sed -n '1s/.*## //p')
	n=$((n + 1))
	echo "== $n of $all: $1${what:+: $what}"
}

run() { # TARGET [-q]
	local target=$1
	shift
	CHECK_SKIPPED=$logs/$target.skipped exec "$build/test/deadline" "$@" ${pressure:+-p "$pressure"} -l "$logs/$target.log" -u "$logs/$target.used" \
		"$(limit "$target")" "$target" ${MAKE:-make} --no-print-directory "$target"
}

ended() { # TARGET STATUS
	local took=0 cpu=0
	[ ! -s "$logs/$1.used" ] || read -r took cpu <"$logs/$1.used"
	times+=("$took $cpu $1")
	if [ "$2" = 0 ] && [ -e "$logs/$1.skipped" ]; then
		skipped+=("$1")
	elif [ "$2" = 0 ]; then
		passed=$((passed + 1))
	else
		failed+=("$1 $took $2")
		echo "check: $1 failed after $took s"
	fi
	[ "$took" -lt 5 ] || [ "$2" != 0 ] || echo "   ($took s, $cpu s of CPU)"
}

# The targets that run at the same time. A child in the background ignores the signals of a terminal, so they are
# passed on.
declare -A running=()
tell() { # STATUS
	told=$1
	[ ${#running[@]} = 0 ] || kill -TERM "${!running[@]}" 2>/dev/null
}
if [ ${#beside[@]} -gt 0 ]; then
	trap 'tell 130' INT
	trap 'tell 143' TERM
	trap 'tell 129' HUP
	echo "== ${#beside[@]} of $all parts run beside one another, $at_once at a time; each is shown when it is done"
	for target in "${beside[@]}" ''; do
		while [ ${#running[@]} -ge "$at_once" ] || { [ -z "$target" ] && [ ${#running[@]} -gt 0 ]; }; do
			pid=''
			wait -n -p pid "${!running[@]}"
			status=$?
			[ -n "${pid:-}" ] || continue
			title "${running[$pid]}"
			cat "$logs/${running[$pid]}.log"
			ended "${running[$pid]}" $status
			unset "running[$pid]"
		done
		[ $told = 0 ] && [ -n "$target" ] || continue
		run "$target" -q &
		running[$!]=$target
		[ $told = 0 ] || tell $told
	done
	trap - INT TERM HUP
fi

for target in "${alone[@]}"; do
	[ $told = 0 ] || break
	title "$target"
	(run "$target")
	status=$?
	ended "$target" $status
	# The user wants all of it to end, not only this target.
	case $status in 129 | 130 | 131 | 143) told=$status ;; esac
done

echo
echo "check: $n parts in $SECONDS s; the slowest:$(printf '%s\n' "${times[@]}" | sort -rn | head -n 5 | while read -r took cpu target; do printf ' %s %d s,' "$target" "$took"; done | sed 's/,$//')"
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
