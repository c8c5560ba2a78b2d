noinst_LIBRARIES += libpolicy.a
libpolicy_a_SOURCES = \
	include/cove/policy.h include/cove/seccomp_profile.h include/cove/audit.h \
	policy/policy_private.h policy/lexer.h policy/lexer_private.h \
	policy/lexer.c policy/quote.c policy/shell.c policy/unwrap.c \
	policy/file.c policy/parse.c policy/scope.c policy/match.c policy/prefilter.c policy/deny.c
libpolicy_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(SECCOMP_CFLAGS) $(CRYPTO_CFLAGS)
