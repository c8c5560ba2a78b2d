bin_PROGRAMS += cove
cove_SOURCES = cli/cli.h cli/json.h cli/json.c cli/table.h cli/table.c cli/progress.h cli/progress.c cli/main.c cli/dispatch.c cli/policy_cli.h cli/policy_cmd.c cli/policy_check.c cli/policy_explain.c cli/policy_load.c \
	cli/policy_cases.c cli/policy_diff.c cli/policy_status.c cli/seccomp_cmd.c \
	cli/audit_cmd.c cli/operator_cmd.c cli/tenant_cmd.c cli/config_cmd.c cli/key.h cli/key_cmd.c cli/key_change.c \
	cli/boxes.h cli/boxes.c cli/usage.h cli/usage.c cli/ls_cmd.c cli/status_cmd.c cli/box_cmd.c cli/exec_cmd.c cli/token_cmd.c cli/network_cmd.c cli/mcp_cmd.c cli/mcp_http.h cli/mcp_http.c cli/mcp_transfer.h cli/mcp_transfer.c \
	cli/snapshot_cmd.c cli/store.h cli/store_cmd.c cli/store_entries.c cli/store_bucket.c cli/template.h cli/template_progress.h cli/template_progress.c cli/template_cmd.c cli/template_store.c cli/template_gc.c cli/template_make.c cli/template_source.c cli/template_oci.c cli/template_fetch.c cli/template_image.c cli/template_implied.c cli/template_doc.h cli/template_doc.c cli/template_options.c \
	cli/doctor.h cli/doctor_cmd.c cli/doctor_host.c cli/doctor_server.c \
	cli/doctor_files.c cli/doctor_front.c cli/doctor_probe.c cli/doctor_network.c
cove_CPPFLAGS = $(AM_CPPFLAGS) $(JSONC_CFLAGS) $(CURL_CFLAGS)
cove_LDADD = liblayer.a libbox.a libclient.a $(POLICY_LIBS) libkeys.a libbase.a $(PCRE2_LIBS) $(SECCOMP_LIBS) $(CRYPTO_LIBS) $(JSONC_LIBS) \
	$(ARCHIVE_LIBS) $(CURL_LIBS) \
	-lpthread
dist_man_MANS += man/cove.1
bashcompdir = $(datadir)/bash-completion/completions
bashcomp_DATA = cli/cove
EXTRA_DIST += cli/README.md cli/cove.bash
CLEANFILES += cli/cove

cli/cove: cli/cove.bash
	$(AM_V_GEN)$(MKDIR_P) cli && cp $(srcdir)/cli/cove.bash $@
