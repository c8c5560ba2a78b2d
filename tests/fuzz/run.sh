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
: >"$build/config.h" # what configure would find out is given below

# The parts under test with their bases, all instrumented, compiled once; a target takes from them what it does not define itself.
compile() {
    "$clang" -g -O1 -std=gnu11 -D_GNU_SOURCE -fno-sanitize-recover=undefined -DCOVE_SYSCONFDIR='"/etc/cove"' \
        -DCOVE_DATADIR='"/usr/share/cove"' -DCOVE_RUNDIR='"/run/cove"' -DCOVE_STATEDIR='"/var/lib/cove"' \
        -DCOVE_LIBEXECDIR='"/usr/libexec/cove"' -DCOVE_VERSION='"0"' -I"$build" -I"$src" -I"$src/include" "$@"
}
rm -rf "$build/objects" "$build/parts.a"
mkdir -p "$build/objects"
mkdir -p "$build/fcgi/proto"
(cd "$src" && protoc-c --c_out="$build" fcgi/proto/process.proto fcgi/proto/filesystem.proto)
for source in "$src"/policy/*/*.c "$src"/base/*.c "$src"/keys/*.c "$src/process/audit_send.c" "$src"/sandbox/client/*.c "$src/helpers/resolver/dns.c" "$src/helpers/gate/websocket.c" \
    "$src"/fcgi/connect*.c "$src/fcgi/http.c" "$src/fcgi/multipart.c" "$src/helpers/saver/digest.c" "$src/helpers/saver/pack.c" "$src/helpers/saver/read_back.c" "$src/helpers/saver/unpack.c" "$src/fcgi/dialects/mcp_message.c" "$src/fcgi/dialects/mcp_replay.c" "$src/fcgi/dialects/mcp_rpc.c" \
    "$src/fcgi/dialects/mcp_session.c" "$src/fcgi/dialects/mcp_uri.c" "$src/fcgi/reply.c" "$src/fcgi/stream.c" "$src/fcgi/stream_framing.c" "$src/fcgi/wire.c" "$build"/fcgi/proto/*.pb-c.c; do
    name=${source#"$build"/}
    name=${name#"$src"/}
    compile -fsanitize=fuzzer-no-link,address,undefined -c "$source" -o "$build/objects/$(echo "$name" | tr / -).o"
done
ar rcs "$build/parts.a" "$build"/objects/*.o

targets="lexer policy profile keys config dns client judge connect mcp json http gate websocket keeper multipart saver"
for target in $targets; do
    compile -fsanitize=fuzzer,address,undefined "$src/tests/fuzz/fuzz_$target.c" "$build/parts.a" -o "$build/fuzz_$target" \
        -lpcre2-8 -lseccomp -lcrypto -lprotobuf-c -ljson-c -lfcgi -lwslay -larchive -lnettle -lz -lm -lpthread
done
# The ring begins behind a page of head, and a script comes before it; the gate reads heads of up to 64 KiB.
length_of() { case $1 in client) echo 81920 ;; gate) echo 66560 ;; keeper) echo 16384 ;; *) echo 4096 ;; esac; }
for target in $targets; do
    mkdir -p "$build/corpus-$target"
    echo "== $target, $seconds s"
    "$build/fuzz_$target" -max_total_time="$seconds" -max_len="$(length_of "$target")" -len_control=0 -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=0 -verbosity=0 -artifact_prefix="$build/" \
        "$build/corpus-$target" "$src/tests/fuzz/corpus/$target" >"$build/$target.log" 2>&1 ||
        { tail -n 40 "$build/$target.log"; exit 1; }
done
rm -rf /dev/shm/cove-fuzz-saver-* # where the saver's target unpacked
echo "no findings"
