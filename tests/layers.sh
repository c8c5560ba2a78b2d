#!/bin/bash
# Arrows between folders go down only. A library may call those to its right and nothing else of ours: a symbol that
# it uses and that only another library defines is an arrow up or sideways. Runs in the build directory (make check).
set -euo pipefail
export LC_ALL=C

readonly LAYERS='
base
shell    base
deny     shell base
profile  base
audit    base
keys     base
client   base
net      base
box      base
layer    box base
process  client deny shell audit base
fetch    process base
keeper   box net client deny shell profile audit keys base
fcgicore proto process client deny shell profile audit keys base
'

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

while read -r name below; do
    [ -n "$name" ] || continue
    nm --defined-only --extern-only "lib$name.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u >"$scratch/$name.has"
    nm --undefined-only "lib$name.a" 2>/dev/null | awk '$1 == "U" { print $2 }' | sort -u >"$scratch/$name.uses"
done <<<"$LAYERS"

bad=0
while read -r name below; do
    [ -n "$name" ] || continue
    for other in "$scratch"/*.has; do
        other=$(basename "$other" .has)
        case " $name $below " in *" $other "*) continue ;; esac
        wrong=$(comm -12 "$scratch/$name.uses" "$scratch/$other.has" | comm -23 - "$scratch/$name.has" | tr '\n' ' ')
        [ -z "$wrong" ] || { echo "lib$name.a may not use lib$other.a, and calls: $wrong"; bad=1; }
    done
done <<<"$LAYERS"

# A dialect knows the core, and the core knows no dialect: only the worker's main lists them all.
names() { awk -v column="$1" 'NF >= column { print $column }' | sort -u; }
nm --defined-only --extern-only fcgi/dialects/*.o 2>/dev/null | names 3 >"$scratch/dialects"
nm --undefined-only fcgi/libfcgicore_a-*.o 2>/dev/null | names 2 >"$scratch/core"
wrong=$(comm -12 "$scratch/core" "$scratch/dialects" | tr '\n' ' ')
[ -z "$wrong" ] || { echo "fcgi/ may not use fcgi/dialects/, and calls: $wrong"; bad=1; }
if [ ! -s "$scratch/dialects" ] || [ ! -s "$scratch/core" ]; then
    echo "$0 found no objects of fcgi/ in $PWD"
    bad=1
fi

# Of two functions with one name the linker takes the first it meets, without a word.
twice=$(cat "$scratch"/*.has | sort | uniq -d | tr '\n' ' ')
[ -z "$twice" ] || { echo "defined in more than one library: $twice"; bad=1; }

# A table that misses a library would prove nothing.
for library in lib*.a; do
    name=${library#lib}
    name=${name%.a}
    grep -q "^$name\b" <<<"$LAYERS" || [ "$name" = proto ] || { echo "$library is in no layer of $0"; bad=1; }
done
exit $bad
