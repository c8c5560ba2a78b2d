#!/bin/bash
# A function that only its own file calls is static: whoever reads it then knows all its callers, and the compiler says
# when it has none left. And a function that only unit tests call is no part of the product. Looks at all objects of the
# build. Runs in the build directory (make check).
set -euo pipefail
export LC_ALL=C

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# DIR/PROGRAM-NAME.o or DIR/NAME.o is made of DIR/NAME.c; an object whose source is gone is left over from an older tree.
find . -name '*.o' -not -path './.cove/*' -not -path './fuzz/*' | while read -r object; do
    name=${object##*/} name=${name%.o}
    [ ! -e "${srcdir:-.}/${object%/*}/${name##*-}.c" ] || echo "$object"
done >"$scratch/objects"

# Names that begin with two underscores or have a dot in them are the compiler's own (sanitizers).
nm_all() { xargs nm -A "$@" <"$scratch/objects" 2>/dev/null | awk '$NF !~ /^__|\./' || true; }
nm_all --defined-only --extern-only | awk '$(NF - 1) ~ /[TDRB]/ && $0 !~ /\/tests\// { print $NF }' | sort -u >"$scratch/offered"
nm_all --undefined-only >"$scratch/undefined"
{ awk '{ print $NF }' "$scratch/undefined"; echo main; } | sort -u >"$scratch/used"
{ awk '$0 !~ /\/tests\// { print $NF }' "$scratch/undefined"; echo main; } | sort -u >"$scratch/used-by-product"

# A check that finds nothing to look at would prove nothing.
[ "$(wc -l <"$scratch/offered")" -gt 1000 ] || { echo "$0 found no objects in $PWD"; exit 1; }
alone=$(comm -23 "$scratch/offered" "$scratch/used")
[ -z "$alone" ] || { echo "not called from another file; make these static, or remove them:"; echo "$alone"; exit 1; }

# Of those that no other file of the product calls, the ones that their own file does not use either: their name stands in
# the sources once, where it is defined.
tested=$(comm -23 "$scratch/offered" "$scratch/used-by-product" | while read -r name; do
    [ "$(cd "${srcdir:-.}" && grep -rhow --include='*.c' "$name" base cli fcgi helpers keys policy process sandbox | wc -l)" -gt 1 ] || echo "$name"
done)
[ -z "$tested" ] || { echo "only unit tests use these; remove them, or move them to the test:"; echo "$tested"; exit 1; }
