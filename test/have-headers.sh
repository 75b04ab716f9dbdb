#!/bin/sh
# Checks before anything is compiled that the compiler and the headers exist, so that there is one sentence instead of
# a hundred errors.
# Usage: CC=... have-headers.sh HEADER...
set -u
: "${CC:=cc}"
# CC may consist of several words.
# shellcheck disable=SC2086
if ! echo 'int main(void) { return 0; }' | $CC -fsyntax-only -x c - 2>/dev/null; then
	echo "There is no C compiler '$CC' here that works; 'make deps' installs what is needed to build (CC=... names another)." >&2
	exit 1
fi
missing=
for header in "$@"; do
	# shellcheck disable=SC2086
	echo "#include <$header>" | $CC ${CPPFLAGS:-} -fsyntax-only -x c - 2>/dev/null || missing="$missing, $header"
done
[ -z "$missing" ] && exit 0
echo "These headers are missing: ${missing#, }. 'make deps' installs what is needed to build." >&2
exit 1
