# bash completion for cove(1)

_cove_words() { # what may follow the words so far
    case "$1" in
    '') echo "status doctor ls top exec logs kill network key operator tenant token mcp snapshot store template policy audit version help" ;;
    status | doctor) echo "--json" ;;
    ls) echo "--all --tenant --json" ;;
    top) echo "--count --interval --tenant --json" ;;
    exec) echo "--tty --interactive --user --cwd --json" ;;
    logs) echo "--follow --json" ;;
    kill | token | version) echo "--json" ;;
    mcp) echo "--url --sandbox --cacert" ;;
    key) echo "create list revoke rotate" ;;
    'key create') echo "--name --expires --dialects --projects --requests --sandboxes --processes --hash --file --json" ;;
    'key list') echo "--tenant --json --file" ;;
    'key rotate') echo "--grace --hash --file --json" ;;
    'key revoke') echo "--file --json" ;;
    'template '* | 'store '* | 'snapshot '* | network) echo "--json" ;;
    operator) echo "add list remove" ;;
    'operator add' | 'operator list' | 'operator remove' | 'tenant list') echo "--json" ;;
    tenant) echo "list" ;;
    policy) echo "check test explain diff status log seccomp" ;;
    'policy check') echo "--strict --json" ;;
    'policy test' | 'policy explain') echo "--dialect --tenant --template --file --cases --argv --json" ;;
    'policy status' | 'policy diff') echo "--json" ;;
    'policy log') echo "--tenant --project --rule --all --lines --file --json" ;;
    'policy seccomp') echo "show diff --json" ;;
    audit) echo "verify" ;;
    snapshot) echo "make ls rm fork" ;;
    store) echo "ls show verify restore export rm gc" ;;
    template) echo "ls show add build builds set rm verify gc" ;;
    esac
}

_cove_first() { # the first column of a list that `cove WORD...` prints
    cove "$@" 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_cove_boxes() { # ids of sandboxes, and the projects that name them
    cove ls 2>/dev/null | awk 'NR > 1 { print $1; if ($4 != "-") print $4 }'
}

_cove() {
    local current=${COMP_WORDS[COMP_CWORD]} words=() word skip=no
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [ "$skip" = yes ]; then skip=no; continue; fi
        case $word in
        -c | --config) skip=yes ;;
        -*) ;;
        *) [ "${#words[@]}" -ge 2 ] || words+=("$word") ;;
        esac
    done
    local path="${words[*]}" list
    list=$(_cove_words "$path")
    # Behind a word that is no command: the options of the command in front of it.
    [ -n "$list" ] || list=$(_cove_words "${words[0]-}" | tr ' ' '\n' | grep '^--' || true)
    case ${words[0]-}:$current in
    exec:[!-]* | logs:[!-]* | kill:[!-]* | token:[!-]* | network:[!-]* | exec: | logs: | kill: | token: | network:)
        list+=" $(_cove_boxes)" ;;
    esac
    case ${COMP_WORDS[COMP_CWORD-1]} in
    --template) list=$(cove template ls 2>/dev/null | awk '{ print $1 }') ;;
    --dialect | --dialects) list="execute executor e2b relay agent console" ;;
    --sandbox) list=$(_cove_boxes) ;;
    --tenant) list=$(_cove_first tenant list) ;;
    esac
    case "$path:$current" in
    "network "*) list="none egress allow-list allow= deny= --json" ;;
    "operator remove:"*) list+=" $(cove operator list 2>/dev/null | awk '{ print $1 }')" ;;
    "template show:"* | "template set:"* | "template rm:"* | "template verify:"*) list+=" $(cove template ls 2>/dev/null | awk '{ print $1 }')" ;;
    "snapshot make:"* | "snapshot fork:"*) list+=" $(_cove_boxes)" ;;
    "snapshot rm:"*) list+=" $(_cove_first snapshot ls)" ;;
    "store show:"* | "store verify:"* | "store restore:"* | "store export:"* | "store rm:"*) list+=" $(cove ls --all 2>/dev/null | awk '$2 == "saved" { print $1 }')" ;;
    "key revoke:"* | "key rotate:"*) list+=" $(_cove_first key list)" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$list" -- "$current")
}

complete -o default -F _cove cove
