# The keeper is a library with a small main, so that its parts have unit tests.
noinst_LIBRARIES += libkeeper.a
libkeeper_a_SOURCES = \
	sandbox/keeper/keeper_private.h sandbox/keeper/life.h sandbox/keeper/quota.h sandbox/keeper/store.h sandbox/keeper/snapshots.h sandbox/keeper/publish.h sandbox/keeper/helpers.h sandbox/keeper/service.h sandbox/keeper/clients.c sandbox/keeper/calls.c sandbox/keeper/keeper.c sandbox/keeper/setup.c sandbox/keeper/boxes.c \
	sandbox/keeper/waiters.c sandbox/keeper/creation.c sandbox/keeper/claim.c sandbox/keeper/pool.c sandbox/keeper/pool_demand.c \
	sandbox/keeper/life.c sandbox/keeper/attributes.c sandbox/keeper/audit_log.c sandbox/keeper/death.c sandbox/keeper/expiry.c sandbox/keeper/adopt.c \
	sandbox/keeper/supervisor.h sandbox/keeper/supervisor.c sandbox/keeper/supervisor_child.c sandbox/keeper/workers.c \
	sandbox/keeper/helper_judge.c sandbox/keeper/helper_starter.c sandbox/keeper/templates.c sandbox/keeper/helper_gate.c sandbox/keeper/helper_auth.c sandbox/keeper/helper_fetch.c sandbox/keeper/helper_builder.c \
	sandbox/keeper/helper_resolver.c sandbox/keeper/publish.c sandbox/keeper/publish_watch.c sandbox/keeper/publish_profiles.c \
	sandbox/keeper/snapshot_manifest.c sandbox/keeper/snapshot_names.c sandbox/keeper/snapshots.c sandbox/keeper/snapshot_layers.c sandbox/keeper/snapshot_info.c sandbox/keeper/capture.c sandbox/keeper/quota.c sandbox/keeper/box_limits.c sandbox/keeper/manager.h sandbox/keeper/notify.c sandbox/keeper/fdstore.c \
	sandbox/keeper/token_secret.c sandbox/keeper/box_network.c sandbox/keeper/cpu_shares.c sandbox/keeper/process_shares.c sandbox/keeper/sampling.c \
	sandbox/keeper/age.c sandbox/keeper/operator.h sandbox/keeper/operator.c sandbox/keeper/operator_verbs.c sandbox/keeper/operator_run.c sandbox/keeper/refusals.c sandbox/keeper/bucket_run.c sandbox/keeper/bucket.c sandbox/keeper/bucket_read.c sandbox/keeper/job.h sandbox/keeper/job.c sandbox/keeper/faults.c sandbox/keeper/saver_run.c sandbox/keeper/saved.c sandbox/keeper/retention.c sandbox/keeper/saving.c sandbox/keeper/saving_notes.c sandbox/keeper/saving_stop.c sandbox/keeper/waking.c sandbox/keeper/ended.c

sbin_PROGRAMS += coved
coved_SOURCES = sandbox/keeper/main.c
KEEPER_LIBS = libkeeper.a libnet.a libbox.a libclient.a libdeny.a libshell.a libprofile.a libaudit.a libkeys.a libbase.a \
	$(SECCOMP_LIBS) $(PCRE2_LIBS) $(CRYPTO_LIBS) $(NFTABLES_LIBS) $(MNL_LIBS) $(SYSTEMD_LIBS) -lcap
coved_LDADD = $(KEEPER_LIBS)
EXTRA_DIST += sandbox/keeper/README.md
