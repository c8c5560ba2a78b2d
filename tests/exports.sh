#!/bin/bash
# A function that only its own file calls is static: whoever reads it then knows all its callers, and the compiler says
# when it has none left. Looks at all objects of the build, those of the unit tests included. Runs in the build directory
# (make check).
set -euo pipefail
export LC_ALL=C

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

objects() { find . -name '*.o' -not -path './fuzz/*' -print0; }

objects | xargs -0 nm -A --defined-only --extern-only 2>/dev/null | awk '$(NF - 1) ~ /[TDRB]/ && $0 !~ /\/tests\// && $0 !~ /\.pb-c\.o:/ { print $NF }' |
    sort -u >"$scratch/offered"
objects | xargs -0 nm --undefined-only 2>/dev/null | awk '$1 == "U" { print $2 }' | sort -u >"$scratch/used"
echo main >>"$scratch/used"
sort -u -o "$scratch/used" "$scratch/used"

# A check that finds nothing to look at would prove nothing.
[ "$(wc -l <"$scratch/offered")" -gt 1000 ] || { echo "$0 found no objects in $PWD"; exit 1; }
alone=$(comm -23 "$scratch/offered" "$scratch/used")
[ -z "$alone" ] || { echo "not called from another file; make these static, or remove them:"; echo "$alone"; exit 1; }
