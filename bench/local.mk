noinst_PROGRAMS += cove-bench
cove_bench_SOURCES = bench/cove_bench.c
cove_bench_LDADD = libclient.a libbase.a -lpthread
EXTRA_DIST += bench/run.sh bench/README.md bench/network.py bench/saving.py bench/tell.py bench/noisy.py bench/layers.py bench/sandboxes.py bench/executor_bench.py bench/auth_bench.py bench/ports_bench.py bench/e2b_bench.mjs bench/console_bench.mjs bench/e2b.sh
