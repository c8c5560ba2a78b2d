dist_doc_DATA = docs/ARCHITECTURE.md docs/SPEC.md docs/SECURITY.md
dist_man_MANS += man/coved.8 man/cove.conf.5
EXTRA_DIST += bench/noisy.py tests/system/test_wall.py tests/system/test_network.py tests/system/test_seccomp.py \
	tests/system/test_differential.py tests/escape
EXTRA_DIST += LICENSE CONTRIBUTING.md quickstart .ci/run \
	tests/system/conftest.py tests/system/cove.py \
	tests/system/test_docs.py tests/system/test_execute.py tests/system/test_lifecycle.py \
	tests/system/test_limits.py tests/system/test_load.py tests/system/test_logs.py \
	tests/system/test_nginx.py tests/system/test_policy.py \
	tests/system/test_quickstart.py
