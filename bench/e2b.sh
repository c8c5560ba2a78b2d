#!/usr/bin/env bash
# The e2b dialect measured with the official SDK (e2b_bench.mjs), against an instance of its own, or the one that E2B_API_URL and E2B_API_KEY name.
#   bench/e2b.sh [--rounds 100] [--burst 100] [--mb 100] [--commands 1000]
#   BENCH_PROGRAM=console_bench.mjs bench/e2b.sh     the web console in headless Chromium, likewise
# The SDK is where `./quickstart bench` and `./quickstart test --only clients` put it; COVE_CLIENTS_MODULES names another node_modules.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cache=${COVE_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cove}/clients-$(sha256sum "$top/tests/clients/package-lock.json" | cut -c1-16)
modules=${COVE_CLIENTS_MODULES:-$cache/node_modules}
[ -d "$modules/e2b" ] || { echo "bench/e2b.sh: no e2b SDK in $modules: run ./quickstart bench" >&2; exit 77; }
work=$(mktemp -d)
port=${BENCH_PORT:-18184}

cleanup() {
    [ ! -d "$work/server" ] || "$top/quickstart" down --dir "$work/server" >"$work/down.log" 2>&1 || cat "$work/down.log"
    rm -rf "$work"
}
trap cleanup EXIT

if [ -z "${E2B_API_URL:-}" ]; then
    "$top/quickstart" up --no-install --dir "$work/server" --http "$port" --https "$((port + 100))" --set pool=8 >"$work/up.log" 2>&1 || { cat "$work/up.log"; exit 1; }
    # shellcheck disable=SC1091 # written by quickstart
    . "$work/server/env"
    export E2B_API_URL=$COVE_URL E2B_API_KEY=$COVE_KEY
fi
export E2B_SANDBOX_URL=${E2B_SANDBOX_URL:-$E2B_API_URL}
ln -s "$modules" "$work/node_modules" # node looks for modules upwards from a file's real place
program=${BENCH_PROGRAM:-e2b_bench.mjs}
cp "$top/bench/$program" "$work/"
node "$work/$program" "$@"
