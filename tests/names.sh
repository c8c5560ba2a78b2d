#!/bin/bash
# Two habits that a compiler does not look after. The name of a struct in a header means one thing in the whole tree,
# so that whoever searches for it finds one definition. And JSON is written by base/json_write.c alone: a quoted
# member name in a format string is JSON by hand, which escapes nothing. Runs in make check.
set -euo pipefail
export LC_ALL=C

cd "${srcdir:-.}"
readonly ROOMS='base cli fcgi helpers include keys policy process sandbox'
bad=0

# shellcheck disable=SC2086 # a list of folders
sources() { find $ROOMS -type f -name "$1" -print0; }

# Lines "NAME FILE", one for each struct with members that begins in the first column.
structs() { sources "$1" | xargs -0 grep -HoE '^struct [a-z_0-9]+ \{' | sed -E 's/^([^:]*):struct ([a-z_0-9]+) .*/\2 \1/'; }

twice=$({ structs '*.h'; structs '*.c'; } | sort -u | awk '
    { places[$1] = places[$1] " " $2; count[$1]++; if ($2 ~ /\.h$/) header[$1] = 1 }
    END { for (name in count) if (count[name] > 1 && header[name]) print "struct " name " is defined in" places[name] }' | sort)
[ -z "$twice" ] || { echo "$twice"; bad=1; }

# These two read lines of the audit log by their text.
by_hand=$(sources '*.c' | xargs -0 grep -nE '[{,]\\"[A-Za-z_]+\\":' | grep -vE '^(policy/audit/audit_verify|cli/audit_cmd)\.c:' || true)
[ -z "$by_hand" ] || { echo "JSON by hand; json_put_*() of cove/json.h writes it:"; echo "$by_hand"; bad=1; }

# A check that finds nothing to look at would prove nothing.
[ "$(structs '*.h' | wc -l)" -gt 100 ] || { echo "$0 found no headers below $PWD"; bad=1; }
exit $bad
