# Completion for fish: options with their words as each tool's --help gives them; GPUs, accounts, keys and values as
# they are now. The same file under the name of each tool.

function __gpuarb_gpus
    set -l dir /dev/shm/gpuarb
    set -q GPUARB_DIR; and set dir $GPUARB_DIR
    command ls $dir/state 2>/dev/null
end

function __gpuarb_accounts
    gpuarb-top --json 2>/dev/null | sed -nE '/^          "name": "/{s/.*: "(.*)",$/\1/;p}'
end

function __gpuarb_classes
    gpuarb-top --json 2>/dev/null | sed -nE '/^            "name": "/{s/.*: "(.*)",$/\1/;p}' | sort -u
end

function __gpuarb_choices
    gpuarb-set --complete 2>/dev/null | awk -F'\t' -v key=$argv[1] '$1 == key {gsub(/\|/, "\n", $2); print $2}'
end

# key=, and with a choice key=value
function __gpuarb_keys
    gpuarb-set --complete 2>/dev/null | awk -F'\t' '{n = split($2, c, "|"); if (!n) print $1 "="; for (i = 1; i <= n; i++) print $1 "=" c[i]}'
end

# An option that takes a value is followed by '=' in the help; the words behind it may go on in the next lines.
function __gpuarb_options
    set -l tool $argv[1]
    # Every group takes part, be it with nothing: the lines below come in fours.
    $tool --help 2>/dev/null | string match -r '^(  -., |      )--([a-z][a-z-]*)(\[?=\S+|) *(.*)$' --groups-only |
        while read -l short; and read -l long; and read -l value; and read -l words
            set -l given -l $long
            set short (string replace -ra '[ ,-]' '' -- $short)
            test -n "$short"; and set given $given -s $short
            string match -q '=*' -- "$value"; and set given $given -x
            complete -c $tool $given -d "$words"
        end
end

# What stands behind "--" is a command line of its own.
function __gpuarb_rest
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    set -e words[1..$at]
    complete -C (string join ' ' -- $words (commandline -ct))
end

complete -c gpuarb-run -l gpu -s g -x -a auto
complete -c gpuarb-run -l policy -s P -x -a '(__gpuarb_choices policy)'
complete -c gpuarb-run -l class -s C -x -a '(__gpuarb_classes)'
complete -c gpuarb-run -l or -s O -x -a 'skip fallback'
complete -c gpuarb-run -l record -r -F
complete -c gpuarb-run -l account -s a -x -a '(__gpuarb_accounts)'
complete -c gpuarb-run -n 'contains -- -- (commandline -opc)' -f -a '(__gpuarb_rest)'
complete -c gpuarb-run -n 'not contains -- -- (commandline -opc)' -f -a '(__fish_complete_command)'
complete -c gpuarb-set -l class -s C -x -a '(__gpuarb_classes)'
complete -c gpuarb-set -l no-class -x -a '(__gpuarb_classes)'
complete -c gpuarb-set -l account -s a -x -a '(__gpuarb_accounts)'
complete -c gpuarb-set -l pid -x -a '(__fish_complete_pids)'
complete -c gpuarb-set -f -a '(__gpuarb_keys)'
complete -c gpuarb-top -f
complete -c gpuarb-top -l explain -s e -x -a '(__gpuarb_accounts)'
complete -c gpuarb-top -l sort -x -a 'share name limit memory throttled debt queue'
complete -c gpuarb-watchdog -f
complete -c gpuarb-node -f
for tool in gpuarb-run gpuarb-set gpuarb-top gpuarb-watchdog gpuarb-cdi gpuarb-node gpuarb-replay gpuarb-runtime
    command -q $tool; or continue
    complete -c $tool -l gpu -s g -x -a '(__gpuarb_gpus)'
    complete -c $tool -l dir -s d -x -a '(__fish_complete_directories)'
    # Last: it brings the words.
    __gpuarb_options $tool
end
