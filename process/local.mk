# What every unprivileged process of ours starts with.
noinst_LIBRARIES += libprocess.a
libprocess_a_CPPFLAGS = $(AM_CPPFLAGS) $(SECCOMP_CFLAGS)
libprocess_a_SOURCES = \
	process/confine.h process/confine.c process/confine_files.c process/process.h process/process.c process/live.h process/live.c \
	process/policy_live.h process/policy_live.c process/manifests_live.h process/manifests_live.c process/audit_send.h process/audit_send.c
EXTRA_DIST += process/README.md
