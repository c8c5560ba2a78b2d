#!/bin/sh
# Builds the fuzz targets with clang into BUILD_DIR and runs each for SECONDS. Ends with 1 on a finding,
# with 77 where there is no clang. What the fuzzer learns goes to BUILD_DIR, the seeds stay as they are.
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:?usage: run.sh BUILD_DIR [SECONDS]}
seconds=${2:-20}
clang=${CLANG:-clang}

command -v "$clang" >/dev/null || { echo "SKIP: no $clang"; exit 77; }
mkdir -p "$build"
build=$(cd "$build" && pwd)

# The parts under test with their bases, all instrumented.
sources="$src/policy/*.c $src/base/err.c $src/base/buf.c $src/base/mem.c $src/base/text.c $src/resolver/dns.c"
for target in lexer policy profile dns; do
    # shellcheck disable=SC2086  # the sources are several words on purpose
    "$clang" -g -O1 -std=gnu11 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=undefined -DCOVE_SYSCONFDIR='"/etc/cove"' \
        -DCOVE_DATADIR='"/usr/share/cove"' -I"$src" -I"$src/include" -I"$src/policy" \
        "$src/tests/fuzz/fuzz_$target.c" $sources -o "$build/fuzz_$target" \
        -lpcre2-8 -lseccomp -lcrypto -lpthread
done
for target in lexer policy profile dns; do
    mkdir -p "$build/corpus-$target"
    echo "== $target, $seconds s"
    "$build/fuzz_$target" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=0 -verbosity=0 -artifact_prefix="$build/" \
        "$build/corpus-$target" "$src/tests/fuzz/corpus/$target" >"$build/$target.log" 2>&1 ||
        { tail -n 40 "$build/$target.log"; exit 1; }
done
echo "no findings"
