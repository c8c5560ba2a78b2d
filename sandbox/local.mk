# The caller's side, for workers, gate and cli.
noinst_LIBRARIES += libclient.a
libclient_a_SOURCES = \
	include/cove/client.h include/cove/state.h include/cove/ring.h \
	sandbox/client_private.h sandbox/client.c sandbox/client_keeper.c sandbox/client_procs.c \
	sandbox/client_files.c sandbox/state.c sandbox/ring.c \
	include/cove/meters.h sandbox/meters.c

noinst_LIBRARIES += libsandbox.a
libsandbox_a_SOURCES = \
	sandbox/sandbox_private.h sandbox/keeper_private.h sandbox/init_fds.h sandbox/weak.h \
	sandbox/tools.c sandbox/cgroup.c sandbox/userns.c sandbox/mounts.c sandbox/template.c \
	sandbox/build.c sandbox/sweep.c sandbox/disk.c sandbox/procfiles.c \
	sandbox/net_private.h sandbox/net.c sandbox/netfilter.c sandbox/rtnl.c sandbox/uplink.c \
	sandbox/netsetup.c sandbox/netwatch.c

sbin_PROGRAMS += coved
coved_SOURCES = sandbox/keeper.c sandbox/keeper_calls.c sandbox/boxes.c sandbox/adopt.c sandbox/workers.c sandbox/gatehouse.c \
	sandbox/publish.c sandbox/publish_profiles.c sandbox/quota.c sandbox/allot.c sandbox/signin.c sandbox/notify.c
coved_SOURCES += sandbox/fdstore.c sandbox/secret.c sandbox/network.c sandbox/names.c
coved_SOURCES += sandbox/fair.c
coved_LDADD = libsandbox.a libclient.a libpolicy.a libkeys.a libbase.a \
	$(SECCOMP_LIBS) $(PCRE2_LIBS) $(CRYPTO_LIBS) $(NFTABLES_LIBS) -lcap

EXTRA_DIST += sandbox/README.md
include sandbox/init.mk
