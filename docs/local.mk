dist_doc_DATA = docs/ARCHITECTURE.md docs/SPEC.md docs/OPERATING.md docs/VM-TEST.md docs/SECURITY.md docs/TEMPLATES.md docs/template.schema.json docs/BENCHMARKS.md docs/MUTANTS.md docs/POLICY.md docs/PORTS.md docs/SAVING.md docs/RELIABILITY.md docs/TERMINALS.md docs/terminal.html
apidir = $(docdir)/api
dist_api_DATA = docs/api/execute.yaml docs/api/executor.yaml docs/api/agent.yaml docs/api/console.yaml docs/api/relay.yaml docs/api/e2b.md docs/api/mcp.md
# The same files for nginx, which serves them at /openapi/ with a page of links.
openapidir = $(pkgdatadir)/web/openapi
openapi_DATA = $(dist_api_DATA) docs/api/index.html
CLEANFILES += docs/api/index.html
docs/api/index.html: $(dist_api_DATA) tools/openapi-index.sh
	$(AM_V_GEN)$(MKDIR_P) docs/api && $(SHELL) $(srcdir)/tools/openapi-index.sh $(srcdir) $(dist_api_DATA) >$@.new && mv $@.new $@
dist_man_MANS += man/coved.8 man/cove.conf.5
EXTRA_DIST += LICENSE CONTRIBUTING.md quickstart tools .ci/run \
	conf/README.md debian/README.md docs/README.md man/README.md systemd/README.md
# The console, photographed by its own test suite (COVE_SCREENSHOTS).
EXTRA_DIST += docs/screenshots/console-editor.png docs/screenshots/console-operator-unlock.png docs/screenshots/console-operator-health.png docs/screenshots/console-operator-tenants.png docs/screenshots/console-operator-templates.png docs/screenshots/console-operator-audit.png docs/screenshots/console-operator-new-key.png docs/screenshots/console-operator-keys.png docs/screenshots/console-snapshots.png docs/screenshots/console-refused.png docs/screenshots/console-files.png docs/screenshots/console-list.png docs/screenshots/console-log.png docs/screenshots/console-phone-dark.png docs/screenshots/console-policy.png docs/screenshots/console-ports.png docs/screenshots/console-processes.png docs/screenshots/console-sign-in.png docs/screenshots/console-terminal.png docs/screenshots/console-usage.png docs/screenshots/console-commands.png docs/screenshots/console-phone-light.png docs/screenshots/console-saved.png docs/screenshots/console-templates.png
