bin_PROGRAMS += cove
cove_SOURCES = cli/cli.h cli/main.c cli/dispatch.c cli/policy_cmd.c cli/seccomp_cmd.c \
	cli/audit_cmd.c cli/config_cmd.c cli/key_cmd.c
cove_CPPFLAGS = $(AM_CPPFLAGS) $(JSONC_CFLAGS)
cove_LDADD = libclient.a libpolicy.a libkeys.a libbase.a $(PCRE2_LIBS) $(SECCOMP_LIBS) $(CRYPTO_LIBS) $(JSONC_LIBS) \
	-lpthread
