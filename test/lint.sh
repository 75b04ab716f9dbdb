#!/bin/bash
# lint.sh ALL PRODUCT SCRIPTS: says what is wrong with sources: clang-format checks ALL, clang-tidy and cppcheck check
# PRODUCT, and SCRIPTS go to shellcheck. A program that is not installed is named in a line with "skipped:".
set -u
cd "$(dirname "$0")/.." || exit 1
read -ra all <<<"$1"
read -ra product <<<"$2"
read -ra scripts <<<"$3"
bad=0 done=''
flags=(-std=gnu11 -D_GNU_SOURCE -Iinclude -I.)
has() {
	command -v "$1" >/dev/null && { done="$done${done:+, }$1"; return; }
	echo "lint: skipped: $1 is not installed (make lint installs it)"
	return 1
}
failed() {
	echo "lint: $1 is not content" >&2
	bad=1
}

if has clang-format; then
	clang-format --dry-run --Werror --ferror-limit=3 "${all[@]}" || failed "clang-format ('make format' mends it)"
fi
if has clang-tidy; then
	printf '%s\n' "${product[@]}" | xargs -P "$(nproc)" -n 20 sh -c '
		flags=$1; shift; clang-tidy --quiet "$@" -- $flags 2>/dev/null' sh "${flags[*]}" || failed clang-tidy
fi
if has cppcheck; then
	cppcheck --quiet -j "$(nproc)" --enable=warning,portability,performance --inline-suppr --error-exitcode=1 --suppress=missingInclude \
		--suppress=missingIncludeSystem --suppress=unknownMacro --suppress=syntaxError:preload/hooks/hooks.def \
		--suppress=preprocessorErrorDirective:shm/base/atomic.h "${flags[@]:1}" '-DElfW(x)=Elf64_##x' "${product[@]}" || failed cppcheck
fi
if has shellcheck; then
	shellcheck -S warning "${scripts[@]}" || failed shellcheck
fi
[ "$bad" = 0 ] || exit 1
echo "lint: nothing found by: ${done:-nobody}"
