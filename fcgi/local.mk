noinst_LIBRARIES += libfcgicore.a
libfcgicore_a_CPPFLAGS = $(AM_CPPFLAGS) $(FCGI_CFLAGS) $(JSONC_CFLAGS) \
	$(SECCOMP_CFLAGS) $(CRYPTO_CFLAGS) $(PROTOBUFC_CFLAGS) $(ZLIB_CFLAGS)
libfcgicore_a_SOURCES = \
	fcgi/http.h fcgi/http.c fcgi/reply.h fcgi/reply.c fcgi/wire.h fcgi/wire.c \
	fcgi/router.h fcgi/router.c fcgi/slots.h fcgi/slots.c fcgi/shares.h fcgi/shares.c fcgi/kept.h fcgi/kept.c fcgi/cors.c \
	fcgi/basic.h fcgi/basic.c fcgi/metrics.h fcgi/metrics.c fcgi/caller.h fcgi/caller.c \
	fcgi/console_session.h fcgi/console_session.c fcgi/auth.h fcgi/auth.c fcgi/port_access.h fcgi/port_access.c fcgi/port_links.h fcgi/port_links.c fcgi/attach.h fcgi/attach.c \
	fcgi/transfer.h fcgi/transfer.c \
	fcgi/check.h fcgi/check.c fcgi/lines.h fcgi/lines.c \
	fcgi/stream.h fcgi/stream.c fcgi/stream_framing.c fcgi/core_policy.c fcgi/core_template.c fcgi/core_files.c fcgi/core_procs.c \
	fcgi/core_stdin.c fcgi/core_logs.c fcgi/core_log_read.c \
	fcgi/core.h fcgi/core.c fcgi/core_session.c fcgi/core_run.c fcgi/core_ports.c fcgi/run.c fcgi/serve.h fcgi/serve.c \
	fcgi/connect.h fcgi/connect.c fcgi/connect_json.c fcgi/multipart.h fcgi/multipart.c \
	fcgi/core_attributes.h fcgi/core_attributes.c fcgi/core_sandboxes.h fcgi/core_sandboxes.c fcgi/core_snapshots.h fcgi/core_snapshots.c fcgi/core_builds.h fcgi/core_builds.c \
	fcgi/core_users.h fcgi/core_users.c fcgi/core_follow.h fcgi/core_follow.c fcgi/core_watch.h fcgi/core_watch.c \
	fcgi/dialects/e2b.h fcgi/dialects/e2b.c fcgi/dialects/e2b_sandboxes.h fcgi/dialects/e2b_sandboxes.c \
	fcgi/dialects/e2b_create.c fcgi/dialects/e2b_list.c fcgi/dialects/e2b_account.c fcgi/dialects/e2b_snapshots.c fcgi/dialects/e2b_templates.h fcgi/dialects/e2b_templates.c fcgi/dialects/e2b_template_names.c fcgi/dialects/e2b_tags.c fcgi/dialects/e2b_builds.c fcgi/dialects/e2b_build_logs.c fcgi/dialects/e2b_build_files.c fcgi/dialects/e2b_network.c fcgi/dialects/e2b_metrics.c fcgi/dialects/e2b_logs.c fcgi/dialects/e2b_envd.c fcgi/dialects/e2b_rpc.c \
	fcgi/dialects/e2b_process.h fcgi/dialects/e2b_process.c fcgi/dialects/e2b_start.c \
	fcgi/dialects/e2b_filesystem.h fcgi/dialects/e2b_filesystem.c fcgi/dialects/e2b_entry.c fcgi/dialects/e2b_watch.c \
	fcgi/dialects/e2b_files.c fcgi/dialects/e2b_upload.c fcgi/dialects/e2b_compose.c fcgi/dialects/e2b_input.c \
	fcgi/dialects/dialects.h fcgi/dialects/dialects.c \
	fcgi/dialects/relay.h fcgi/dialects/relay.c fcgi/dialects/relay_agent.c fcgi/dialects/relay_bridge.c \
	fcgi/dialects/console.h fcgi/dialects/console.c fcgi/dialects/console_sandboxes.c fcgi/dialects/console_events.c fcgi/dialects/console_usage.c fcgi/dialects/console_commands.c fcgi/dialects/console_builds.c fcgi/dialects/console_operator.c fcgi/dialects/console_snapshots.c fcgi/dialects/console_files.c \
	fcgi/dialects/console_processes.c fcgi/dialects/console_ports.c fcgi/dialects/console_policy.c \
	fcgi/dialects/executor.h fcgi/dialects/executor.c fcgi/dialects/executor_run.c \
	fcgi/dialects/executor_files.c fcgi/dialects/executor_raw.c \
	fcgi/dialects/executor_procs.c fcgi/dialects/executor_logs.c \
	fcgi/dialects/executor_ports.c fcgi/dialects/executor_sockets.c \
	fcgi/dialects/agent.h fcgi/dialects/agent.c fcgi/dialects/agent_sandboxes.c fcgi/dialects/agent_run.c \
	fcgi/dialects/agent_procs.c fcgi/dialects/agent_files.c fcgi/dialects/agent_ports.c \
	fcgi/dialects/agent_upload.c fcgi/dialects/agent_fetch.c fcgi/core_fetch.h fcgi/core_fetch.c fcgi/spool.h fcgi/spool.c \
	fcgi/dialects/mcp.h fcgi/dialects/mcp.c fcgi/dialects/mcp_message.c fcgi/dialects/mcp_rpc.c fcgi/dialects/mcp_session.c \
	fcgi/dialects/mcp_methods.c fcgi/dialects/mcp_tools.c fcgi/dialects/mcp_schema.c \
	fcgi/dialects/mcp_run.c fcgi/dialects/mcp_procs.c fcgi/dialects/mcp_read.c fcgi/dialects/mcp_files.c fcgi/dialects/mcp_edit.c \
	fcgi/dialects/mcp_search.c fcgi/dialects/mcp_info.c fcgi/dialects/mcp_resources.c fcgi/dialects/mcp_uri.c fcgi/dialects/mcp_watch.c fcgi/dialects/mcp_replay.c \
	fcgi/dialects/execute.h fcgi/dialects/execute.c fcgi/dialects/execute_body.c

# Messages of the e2b dialect: structs and descriptors that protobuf-c writes from their definitions.
PROTO_BUILT = fcgi/proto/process.pb-c.h fcgi/proto/process.pb-c.c \
	fcgi/proto/filesystem.pb-c.h fcgi/proto/filesystem.pb-c.c
noinst_LIBRARIES += libproto.a
nodist_libproto_a_SOURCES = $(PROTO_BUILT)
libproto_a_SOURCES =
libproto_a_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUFC_CFLAGS)
libproto_a_CFLAGS = $(AM_CFLAGS) -Wno-missing-braces
BUILT_SOURCES += $(PROTO_BUILT)
CLEANFILES += $(PROTO_BUILT)
EXTRA_DIST += fcgi/proto/process.proto fcgi/proto/filesystem.proto
%.pb-c.c: %.proto
	$(AM_V_GEN)$(MKDIR_P) fcgi/proto && $(PROTOC_C) --proto_path=$(top_srcdir) --c_out=. $<
%.pb-c.h: %.pb-c.c ;

FCGICORE_LIBS = libfcgicore.a libproto.a libprocess.a libclient.a $(POLICY_LIBS) libkeys.a libbase.a $(FCGI_LIBS) $(JSONC_LIBS) \
	$(SECCOMP_LIBS) $(PCRE2_LIBS) $(CRYPTO_LIBS) $(PROTOBUFC_LIBS) $(ZLIB_LIBS) -lm -lpthread

pkglibexec_PROGRAMS += cove-worker
cove_worker_CPPFLAGS = $(libfcgicore_a_CPPFLAGS)
cove_worker_SOURCES = fcgi/worker.c fcgi/threads.h fcgi/threads.c
cove_worker_LDADD = $(FCGICORE_LIBS)
EXTRA_DIST += fcgi/README.md fcgi/proto/README.md fcgi/dialects/README.md
