examplesdir = $(docdir)/examples
dist_examples_DATA = docs/examples/README.md docs/examples/curl.sh docs/examples/run_code.py docs/examples/build_site.mjs docs/examples/e2b_fork.mjs docs/examples/mcp_agent.mjs \
	docs/examples/code_interpreter.py docs/examples/code_interpreter.mjs
