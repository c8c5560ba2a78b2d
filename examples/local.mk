examplesdir = $(docdir)/examples
dist_examples_DATA = examples/README.md examples/curl.sh examples/run_code.py examples/build_site.mjs examples/e2b_fork.mjs examples/mcp_agent.mjs \
	examples/code_interpreter.py examples/code_interpreter.mjs
