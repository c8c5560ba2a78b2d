dist_doc_DATA = docs/ARCHITECTURE.md docs/SPEC.md docs/OPERATING.md docs/VM-TEST.md docs/SECURITY.md docs/BENCHMARKS.md
dist_man_MANS += man/coved.8 man/cove.conf.5
EXTRA_DIST += bench/noisy.py bench/network.py tests/system/test_wall.py tests/system/test_network.py tests/system/internet.py tests/system/test_seccomp.py \
	tests/system/test_differential.py tests/escape
EXTRA_DIST += LICENSE CONTRIBUTING.md quickstart tools .ci/run \
	tests/pytest.ini tests/conftest.py tests/hostile tests/system/cove.py \
	tests/system/test_docs.py tests/system/test_execute.py tests/system/test_lifecycle.py \
	tests/system/test_limits.py tests/system/test_load.py tests/system/test_logs.py \
	tests/system/test_nginx.py tests/system/test_policy.py tests/system/test_quickstart.py \
	docs/api/executor.yaml tests/system/executor.py tests/system/executor_examples.md \
	tests/system/test_executor_api.py tests/system/test_executor_examples.py \
	tests/system/test_executor_faults.py tests/system/test_executor_files.py \
	tests/system/test_executor_ports.py tests/system/test_executor_procs.py \
	tests/system/test_executor_run.py \
	tests/system/test_front_cli.py tests/system/test_front_keys.py tests/system/test_front_metrics.py \
	tests/system/test_front_nginx.py tests/system/test_front_pam.py tests/system/test_front_systemd.py \
	tests/system/test_front_tenants.py
