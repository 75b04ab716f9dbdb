#!/bin/bash
# What the shells offer: every option of every tool and no other, keys and their values, the accounts and GPUs that
# exist, and after "--" what the program's own completion offers. zsh and fish are tested where they are installed.
# Usage: completion.sh BUILD
set -u
build=$(readlink -f "$1")
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d /dev/shm/gpuarb-completion-XXXXXX) || exit 1
export PATH=$build:$PATH GPUARB_DIR=$work GPUSIM_DIR=$work GPUARB_CONF=/dev/null
unset GPUARB_ACCOUNT GPUARB_CORE_LIMIT LD_PRELOAD
bad=0
say() {
	echo "completion: $*" >&2
	bad=$((bad + 1))
}
gpuarb-run --sim --account web -- simload -k 200 -d 60 >/dev/null 2>&1 &
load=$!
trap 'kill $load 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
for _ in {1..200}; do
	gpuarb-top --json 2>/dev/null | grep -q '"name": "web"' && break
	sleep 0.05
done

# shellcheck source=/dev/null
. tools/completion/gpuarb.bash
# offers WORD...: prints what is offered for the last word of this command line, as bash divides it
offers() {
	COMP_WORDS=("$@")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_gpuarb "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>"$work/err"
	[ -s "$work/err" ] && say "$*: $(head -n 1 "$work/err")"
	printf '%s\n' "${COMPREPLY[@]}"
}
expect() { # WANTED COMMAND-LINE...
	wanted=$1
	shift
	offers "$@" | grep -qxF -- "$wanted" || say "bash: '$*' does not offer $wanted but $(offers "$@" | tr '\n' ' ')"
}

tools=0
for tool in tools/gpuarb-*.c; do
	tool=$(basename "$tool" .c)
	tools=$((tools + 1))
	complete -p "$tool" >/dev/null 2>&1 || say "$tool has no completion"
	for option in $("$tool" --help | sed -nE 's/^ *(-., +)?(--[a-z][a-z-]*).*/\2/p'); do
		offers "$tool" -- | grep -qE -- "^$option=?\$" || say "$tool: $option is not offered"
	done
	for option in $(offers "$tool" --); do
		"$tool" "$option" --help 2>&1 | grep -qE 'unrecognized|ambiguous' &&
			say "$tool: $option is offered and does not exist"
	done
	man -w -l "tools/$tool.1" >/dev/null 2>&1 || say "$tool has no man page"
	for option in $("$tool" --help | sed -nE 's/^ *(-., +)?(--[a-z][a-z-]*).*/\2/p'); do
		case $option in
		--help | --usage | --version) continue ;;
		esac
		sed 's/\\-/-/g' "tools/$tool.1" | grep -q -- "$option" || say "tools/$tool.1 does not know $option"
	done
done

# arbiter.conf(5) has every setting of include/gpuarb/keys.def, with its default and its allowed values.
page=$build/arbiter.conf.5
man --warnings -l "$page" >"$work/page" 2>"$work/err" || say "arbiter.conf.5 cannot be formatted"
[ -s "$work/err" ] && say "arbiter.conf.5: $(head -n 1 "$work/err")"
grep -q '@GPU@\|@CLASS@' "$page" && say "arbiter.conf.5 has places that were not filled in"
settings=0
for key in $(sed -nE 's/^KEY\([A-Z_]+, "([a-z_]+)".*/\1/p' include/gpuarb/keys.def); do
	settings=$((settings + 1))
	default=$(sed -nE "s/^\.BR $key \" \(default: (.*)\)\"/\1/p" "$page" | head -n 1)
	grep -qxF "#$key = ${default/#empty/}" arbiter.conf.example || say "arbiter.conf.5 says that $key is '$default' by default"
	allowed=$(gpuarb-set --keys | sed -nE "/^$key( |\$)/{n;s/^ +//;p}" | grep -oE '[0-9.]+ to [0-9.]+')
	[ -z "$allowed" ] || tr -s ' \n' ' ' <"$work/page" | grep -q "$allowed" || say "arbiter.conf.5 does not say that $key may be $allowed"
done
[ "$settings" -ge 40 ] || say "only $settings settings were found in include/gpuarb/keys.def"
for key in mode under_pressure queue_limit; do
	grep -q "^.BR $key " "$page" || say "arbiter.conf.5 does not have $key of a class"
done

expect --account= gpuarb-set --ac
expect policy= gpuarb-set pol
expect fair gpuarb-set policy = f
expect idle gpuarb-set borrow =
expect exclusive gpuarb-run --policy ex
expect exclusive gpuarb-run --policy = ex
expect web gpuarb-set --account w
expect web gpuarb-set --account = w
expect web gpuarb-top --explain ""
expect default gpuarb-run --class de
expect fallback gpuarb-run --or f
expect auto gpuarb-run --gpu a
expect README.md gpuarb-replay READ
expect README.md gpuarb-run --record READ
expect throttled gpuarb-top --sort th
expect chmod gpuarb-run --core 5 -- chmo
expect "$(ls "$work/state")" gpuarb-set --gpu GPU-
expect "$(ls "$work/state")" gpuarb-watchdog --gpu GPU-

others=
if command -v fish >/dev/null; then
	others="$others fish"
	fish_offers() {
		HOME=$work fish -c "source tools/completion/gpuarb.fish; complete -C'$1'" 2>"$work/err" | cut -f1 |
			grep -qxF -- "$2" || say "fish: '$1' does not offer $2 $(cat "$work/err")"
	}
	fish_offers "gpuarb-set --ac" --account
	fish_offers "gpuarb-set policy=f" policy=fair
	fish_offers "gpuarb-run --policy ex" exclusive
	fish_offers "gpuarb-top --explain w" web
	fish_offers "gpuarb-run --class de" default
	fish_offers "gpuarb-run -- chmo" chmod
fi
if command -v zsh >/dev/null; then
	others="$others zsh"
	# Presses TAB in a terminal of its own.
	cat >"$work/type" <<-'TYPE'
		zmodload zsh/zpty
		zpty shell zsh -fi
		zpty -w shell "PS1= ; fpath=(tools/completion \$fpath); autoload -U compinit && compinit -u -d $2/dump; stty -echo"
		zpty -w shell "bindkey '^I' complete-word; zstyle ':completion:*' list-prompt ''; echo re''ady"
		zpty -r shell line '*ready*'
		zpty -w -n shell "$1"$'\t'
		sleep 1
		zpty -w shell $'\C-aecho "<'$'\C-e>"'
		zpty -r shell line '*<*>*'
		print -r -- $line
	TYPE
	zsh_offers() {
		timeout 20 zsh "$work/type" "$1" "$work" 2>"$work/err" | grep -qF -- "$2" ||
			say "zsh: '$1' does not become '$2': $(timeout 20 zsh "$work/type" "$1" "$work" 2>&1 | tail -n 3)"
	}
	zsh_offers "gpuarb-set pol" "gpuarb-set policy="
	zsh_offers "gpuarb-set --acc" "gpuarb-set --account"
	zsh_offers "gpuarb-set policy=exc" "policy=exclusive"
	zsh_offers "gpuarb-top --explain we" "--explain web"
	zsh_offers "gpuarb-run --class de" "--class default"
fi

[ "$bad" = 0 ] || exit 1
echo "completion: $tools tools, each with every option and a man page that knows them; bash$others"
