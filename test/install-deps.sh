#!/bin/sh
# Installs the Debian packages named on the command line that are not there yet.
set -u
missing=
for p in "$@"; do
	case "$(dpkg-query -W -f='${Status}' "$p" 2>/dev/null)" in
	*"ok installed"*) ;;
	*) missing="$missing $p" ;;
	esac
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null; then
	echo "These Debian packages (or your system's equivalent) are needed:$missing" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
	sudo=sudo
	if ! command -v sudo >/dev/null; then
		echo "Ask an administrator to run: apt-get install$missing" >&2
		exit 1
	fi
fi
echo "Installing$missing"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
install() { DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends $missing >"$log" 2>&1; }
if ! install; then
	$sudo apt-get update >"$log" 2>&1 && install || {
		tail -n 5 "$log" >&2
		echo "apt-get could not install$missing" >&2
		exit 1
	}
fi
