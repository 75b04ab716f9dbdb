# Completion for bash: options as each tool's --help gives them, so that they are never out of date; GPUs, accounts,
# keys and values as they are just now.

# Where the list of options has them, not where a sentence or an example of another program does.
_gpuarb_options() {
	"$1" --help 2>/dev/null | sed -nE 's/^(  -., |      )(--[a-z][a-z-]*=?).*/\2/p'
}

_gpuarb_dir() {
	local i dir=${GPUARB_DIR:-/dev/shm/gpuarb}
	for ((i = 1; i < ${#COMP_WORDS[@]} - 1; i++)); do
		case ${COMP_WORDS[i]} in
		--dir | -d) dir=${COMP_WORDS[i + 1]} ;;
		esac
	done
	[ "$dir" = = ] && dir=${GPUARB_DIR:-/dev/shm/gpuarb}
	echo "$dir"
}

_gpuarb_gpus() {
	ls "$(_gpuarb_dir)/state" 2>/dev/null
}

# Names out of the JSON, by how deep they stand: accounts 10, classes of tasks 12.
_gpuarb_names() {
	gpuarb-top --dir "$(_gpuarb_dir)" --json 2>/dev/null |
		sed -nE "/^ {$1}\"name\": \"/{s/.*: \"(.*)\",\$/\\1/;p}" | sort -u
}

_gpuarb_accounts() { _gpuarb_names 10; }

_gpuarb_choices() { # of a key
	gpuarb-set --complete 2>/dev/null | awk -F'\t' -v key="$1" '$1 == key {gsub(/\|/, "\n", $2); print $2}'
}

_gpuarb() {
	local tool=$1 cur=$2 prev=$3 i from words=
	COMPREPLY=()
	# A program's own arguments are its own business.
	if [ "$tool" = gpuarb-run ] || [ "${tool##*/}" = gpuarb-run ]; then
		for ((i = 1; i < COMP_CWORD; i++)); do
			case ${COMP_WORDS[i]} in
			--)
				from=$((i + 1))
				break
				;;
			esac
		done
		if [ -n "${from:-}" ]; then
			if declare -F _command_offset >/dev/null; then
				_command_offset "$from"
			elif [ "$COMP_CWORD" = "$from" ]; then
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			else
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			fi
			return
		fi
	fi
	# bash divides words at '='.
	if [ "$cur" = = ]; then
		cur=
	elif [ "$prev" = = ] && [ "$COMP_CWORD" -ge 2 ]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	case ${tool##*/}:$prev in
	*:--account | *:-a | gpuarb-top:--explain | gpuarb-top:-e) words=$(_gpuarb_accounts) ;;
	*:--class | *:-C | *:--no-class) words=$(_gpuarb_names 12) ;;
	gpuarb-run:--or | gpuarb-run:-O) words="skip fallback" ;;
	gpuarb-run:--gpu | gpuarb-run:-g) words="auto $(_gpuarb_gpus)" ;;
	*:--gpu | *:-g) words=$(_gpuarb_gpus) ;;
	gpuarb-run:--policy | gpuarb-run:-P) words=$(_gpuarb_choices policy) ;;
	gpuarb-top:--sort) words="share name limit memory throttled debt queue" ;;
	gpuarb-set:--pid) words=$(cd /proc && echo [0-9]*) ;;
	*:--dir | *:-d)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	gpuarb-cdi:--output | gpuarb-cdi:-o | gpuarb-cdi:--library | gpuarb-run:--record)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	gpuarb-cdi:--group | gpuarb-cdi:-G)
		mapfile -t COMPREPLY < <(compgen -g -- "$cur")
		return
		;;
	gpuarb-set:[a-z]*) words=$(_gpuarb_choices "$prev") ;;
	esac
	if [ -z "$words" ]; then
		case $cur in
		-*) words=$(_gpuarb_options "$tool") ;;
		*)
			if [ "${tool##*/}" = gpuarb-set ]; then
				words=$(gpuarb-set --complete 2>/dev/null | awk -F'\t' '{print $1 "="}')
			elif [ "${tool##*/}" = gpuarb-replay ]; then
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
				return
			elif [ "${tool##*/}" = gpuarb-run ]; then
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
				return
			fi
			;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	case "${COMPREPLY[*]}" in
	*=) compopt -o nospace 2>/dev/null ;;
	esac
}

complete -F _gpuarb gpuarb-run gpuarb-set gpuarb-top gpuarb-watchdog gpuarb-cdi gpuarb-node gpuarb-replay gpuarb-runtime
