# The console's pages: static files that nginx serves, no build step.
webdir = $(pkgdatadir)/web
dist_web_DATA = web/index.html web/console.css web/icon.svg web/app.js web/api.js web/ui.js web/signin.js web/list.js \
	web/sandbox.js web/files.js web/processes.js web/commands.js web/templates.js web/ports.js web/terminal.js web/policy.js web/operator.js web/operator_pages.js web/snapshots.js web/refusals.js web/usage.js
# What the sign-in page says of the server.
web_DATA = web/version.json
CLEANFILES += web/version.json
web/version.json: $(top_builddir)/config.status
	$(AM_V_GEN)$(MKDIR_P) web && printf '{"version":"%s"}\n' '$(VERSION)' >$@
webvendordir = $(webdir)/vendor
dist_webvendor_DATA = web/vendor/xterm.mjs web/vendor/xterm.css web/vendor/addon-fit.mjs web/vendor/LICENSE
EXTRA_DIST += web/README.md web/vendor/README.md
