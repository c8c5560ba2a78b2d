#!/usr/bin/env bash
# Starts two instances of its own (one with a warm pool, one without), measures, and prints Markdown tables.
#   bench/run.sh BUILD_DIR [ROUNDS]
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench/run.sh BUILD_DIR [ROUNDS]}
rounds=${2:-200}
work=$(mktemp -d)
warm_port=${BENCH_PORT:-18180}
cold_port=$((warm_port + 1))

cleanup_instances() {
    local name
    for name in warm cold; do
        [ ! -d "$work/$name" ] || "$top/quickstart" down --dir "$work/$name" >"$work/down.log" 2>&1 || cat "$work/down.log"
    done
}

cleanup() {
    cleanup_instances
    rm -rf "$work"
}
trap cleanup EXIT

start() { # NAME PORT POOL
    "$top/quickstart" up --no-install --dir "$work/$1" --http "$2" --https "$(($2 + 100))" \
        --set "pool=$3" --set max_sandboxes=128 >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; exit 1; }
}

value() { # FILE NAME
    sed -n "s/^\(export \)\?$2=['\"]\?\([^'\"]*\)['\"]\?$/\2/p" "$1" | head -1
}

start warm "$warm_port" 8
start cold "$cold_port" 0
warm_key=$(value "$work/warm/env" COVE_KEY)
cold_key=$(value "$work/cold/env" COVE_KEY)
run_dir=$(sed -n 's/^run_dir *= *//p' "$work/warm/conf/cove.conf" | head -1)

echo "Measured $(date -u +%Y-%m-%d), $(nproc) cpus ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), kernel $(uname -r), $rounds rounds."
echo
echo "| serial, one client | p50 ms | p99 ms | ratio of p50 to (a) | n |"
echo "| --- | --- | --- | --- | --- |"
"$build/cove-bench" latency "$run_dir" 127.0.0.1 "$warm_port" "$warm_key" "$rounds"
"$build/cove-bench" create 127.0.0.1 "$warm_port" "$warm_key" "$((rounds / 2))" "(d) new sandbox and first command through nginx, warm pool"
"$build/cove-bench" create 127.0.0.1 "$cold_port" "$cold_key" "$((rounds / 2))" "(d) the same, no pool (cold)"
echo
echo "| commands a second | per s | p50 ms | p99 ms | ratio |"
echo "| --- | --- | --- | --- | --- |"
"$build/cove-bench" load 127.0.0.1 "$warm_port" "$warm_key" 16 5
echo
echo "| exec-time policy | p50 ms | p99 ms | ratio | n |"
echo "| --- | --- | --- | --- | --- |"
"$build/cove-bench" exec "$run_dir" 127.0.0.1 "$warm_port" "$warm_key" "$((rounds / 5))"
echo
/usr/bin/python3 "$top/bench/layers.py" "$((rounds / 2))"
echo
/usr/bin/python3 "$top/bench/noisy.py" "$work/warm"
if [ -x "$build/policy-bench" ]; then
    echo
    "$build/policy-bench"
fi
cleanup_instances # what follows has its own
/usr/bin/python3 "$top/bench/sandboxes.py"
echo
/usr/bin/python3 "$top/bench/executor_bench.py"
echo
/usr/bin/python3 "$top/bench/ports_bench.py"
echo
bash "$top/bench/e2b.sh" || { [ $? = 77 ] && echo "The e2b SDK is not installed: its part was left out."; }
