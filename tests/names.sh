#!/bin/bash
# Habits that a compiler does not look after. The name of a struct in a header means one thing in the whole tree,
# so that whoever searches for it finds one definition. JSON is written by base/json_write.c alone: a quoted
# member name in a format string is JSON by hand, which escapes nothing. Its members come from tables. And a dialect is named in its own files alone: what others must know of it is its
# row in include/cove/dialect.h. Runs in make check.
set -euo pipefail
export LC_ALL=C

cd "${srcdir:-.}"
readonly ROOMS='base cli fcgi helpers include keys policy process sandbox'
bad=0

# shellcheck disable=SC2086 # a list of folders
sources() { find $ROOMS ${2-} -type f -name "$1" -print0; }

# Lines "NAME FILE", one for each struct with members that begins in the first column.
structs() { sources "$1" | xargs -0 grep -HoE '^struct [a-z_0-9]+ \{' | sed -E 's/^([^:]*):struct ([a-z_0-9]+) .*/\2 \1/'; }

twice=$({ structs '*.h'; structs '*.c'; } | sort -u | awk '
    { places[$1] = places[$1] " " $2; count[$1]++; if ($2 ~ /\.h$/) header[$1] = 1 }
    END { for (name in count) if (count[name] > 1 && header[name]) print "struct " name " is defined in" places[name] }' | sort)
[ -z "$twice" ] || { echo "$twice"; bad=1; }

# These two read lines of the audit log by their text.
by_hand=$(sources '*.c' bench | xargs -0 grep -nE '[{,]\\"[A-Za-z_]+\\":' | grep -vE '^(policy/audit/audit_verify|cli/audit_cmd)\.c:' || true)
[ -z "$by_hand" ] || { echo "JSON by hand; json_put_*() of cove/json.h writes it:"; echo "$by_hand"; bad=1; }

# Replies, log lines and the output of `cove ... --json` come from tables of fields, which their readers, documents and
# schemas share: a member with a fixed name that is written by a call stands in no table. Names that are data (variables,
# metadata) and lists may be written by calls. The gate writes a line of a process piece by piece, as it comes.
by_call=$(sources '*.c' | xargs -0 grep -nE 'json_(put_(str|text|bytes|int|double|bool|null|json)|text_begin)\([^,;]*, *("|[A-Z])' |
    grep -vE '\([^,;]*, *NULL\b|^helpers/gate/lines\.c:' || true)
[ -z "$by_call" ] || { echo "a member of a reply is written by a call; a row of its table (JSON_... of cove/json.h) writes it:"; echo "$by_call"; bad=1; }

# By its number, or by its name as a whole string. In cove.conf and in its reader an operator sets something for one dialect by
# its name; cli/main.c's "mcp" is a command of `cove`.
names=$(sed -nE 's/^    ROW\(\w+, +"(\w+)".*/\1/p' include/cove/dialect.h)
numbers=$(sed -nE 's/^    ROW\((\w+),.*/DIALECT_\1/p' include/cove/dialect.h)
named=$(sources '*.[ch]' | xargs -0 grep -nwE "$(paste -sd'|' <<<"$numbers")|\"($(paste -sd'|' <<<"$names"))\"|e2b\w*" |
    grep -vE '^(fcgi/dialects/|include/cove/dialect\.h:|base/config\.c:|include/cove/config\.h:|cli/main\.c:[0-9]+:.*cli_mcp)' |
    grep -vE '^[^:]+:[0-9]+:( \*|/\*|    /\*|.*/\* .*e2b.*\*/)' || true)
[ -z "$named" ] || { echo "a dialect is named outside its files; its row in include/cove/dialect.h can say what is needed:"; echo "$named"; bad=1; }
[ "$(wc -l <<<"$names")" -gt 5 ] || { echo "$0 found no dialects"; bad=1; }

# Which sandbox a name means is one question with one answer (cove/which.h): policy, sessions, tokens and ports must not
# disagree about it. Only the keeper, whose tables these are, looks into them by itself.
looked_up=$(find cli fcgi helpers process -type f -name '*.c' -print0 | xargs -0 grep -nE '\bstate_find_\w+\(' || true)
[ -z "$looked_up" ] || { echo "a sandbox is looked up past which_*() of cove/which.h:"; echo "$looked_up"; bad=1; }

# The number of a message means one thing, whoever receives it: a log or a packet then tells what was said.
numbered=$(sed -E 's:/\*.*\*/::' include/cove/*.h | awk '
    /^enum (msg_type|[a-z]+_msg) \{/ { inside = 1; value = 0; next }
    /^\};/ { inside = 0 }
    inside && match($0, /[A-Z_]+/) && $1 !~ /^[*\/]/ {
        name = substr($0, RSTART, RLENGTH)
        if (match($0, /= *[0-9]+/)) value = substr($0, RSTART + 1, RLENGTH - 1) + 0
        print value++, name
    }' | sort -n)
same=$(awk 'seen[$1]++ { print }' <<<"$numbered")
[ -z "$same" ] || { echo "messages whose number another one has:"; echo "$same"; bad=1; }
[ "$(wc -l <<<"$numbered")" -gt 90 ] || { echo "$0 found no messages"; bad=1; }

# The README of a folder names each of its files, or a family of them: `mcp_*.c`.
unnamed=$(sources '*.c' | tr '\0' '\n' | while read -r file; do
    folder=$(dirname "$file") name=$(basename "$file")
    grep -qE "(^|[^a-z_])(${name//./\\.}|${name%%_*}_\*\.c)" "$folder/README.md" || echo "$file"
done)
[ -z "$unnamed" ] || { echo "the README of their folder does not name:"; echo "$unnamed"; bad=1; }

# A check that finds nothing to look at would prove nothing.
[ "$(structs '*.h' | wc -l)" -gt 100 ] || { echo "$0 found no headers below $PWD"; bad=1; }
exit $bad
