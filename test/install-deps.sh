#!/bin/bash
# Installs those of the named Debian packages that are missing, and shows apt's progress: on a terminal as one line,
# otherwise as apt prints it.
set -u
missing=()
for p in "$@"; do
	case "$(dpkg-query -W -f='${Status}' "$p" 2>/dev/null)" in
	*"ok installed"*) ;;
	*) missing+=("$p") ;;
	esac
done
[ ${#missing[@]} = 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
	echo "These Debian packages (or your system's equivalent) are needed: ${missing[*]}" >&2
	exit 1
fi
sudo=()
if [ "$(id -u)" != 0 ]; then
	sudo=(sudo)
	if ! command -v sudo >/dev/null; then
		echo "Ask an administrator to run: apt-get install ${missing[*]}" >&2
		exit 1
	fi
	# On a terminal the line of progress would hide sudo's question for a password.
	sudo -v || exit 1
fi
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# apt WORD...: runs apt-get; its output goes to the log, and its progress to the screen
apt() {
	if [ -t 1 ]; then
		"$(dirname "$0")/progress.sh" "" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@"
	else
		"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" 2>&1 | tee "$log" |
			grep --line-buffered -E '^(Hit|Get|Err|Need to get|Setting up|[EW]:)'
		return "${PIPESTATUS[0]}"
	fi
}
echo "Installing ${missing[*]}"
installed() { dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii *//p' | sort -u; }
before=$(installed)
# Tests start the services that they need: a service that came with a package must not start with the machine.
leave_disabled() {
	local unit
	command -v systemctl >/dev/null || return 0
	comm -13 <(echo "$before") <(installed) | xargs -r dpkg -L 2>/dev/null |
		sed -nE 's@^(/usr)?/lib/systemd/system/([^/]+\.(service|socket|timer))$@\2@p' | sort -u |
		while read -r unit; do
			[ "$(systemctl is-enabled "$unit" 2>/dev/null)" != enabled ] || "${sudo[@]}" systemctl disable --now --quiet "$unit" 2>/dev/null ||
				"${sudo[@]}" systemctl disable --quiet "$unit" 2>/dev/null
		done
	return 0
}
# A new machine has no lists of packages, and old lists name packages that are gone.
if ! apt-get install --simulate --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
	apt update || { echo "apt-get update failed: see above" >&2; exit 1; }
fi
apt install -y --no-install-recommends "${missing[@]}" ||
	{ apt update && apt install -y --no-install-recommends "${missing[@]}"; } || {
	[ -t 1 ] || tail -n 5 "$log" >&2
	echo "apt-get could not install ${missing[*]}" >&2
	exit 1
}
leave_disabled
