noinst_LIBRARIES += libpolicy.a
libpolicy_a_SOURCES = \
	include/cove/policy.h include/cove/seccomp_profile.h include/cove/audit.h \
	policy/policy_private.h policy/lexer.h policy/lexer_private.h policy/profile_private.h \
	policy/audit_private.h \
	policy/lexer.c policy/quote.c policy/expand.c policy/brace.c policy/redirect.c \
	policy/shell.c policy/unwrap.c policy/wrappers.c policy/param.c policy/vars.c policy/output.c \
	policy/file.c policy/parse.c policy/scope.c policy/match.c policy/prefilter.c policy/deny.c \
	policy/lint.c policy/profile.c policy/profile_compile.c policy/profile_pack.c \
	policy/audit.c policy/audit_verify.c policy/redact.c
libpolicy_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(SECCOMP_CFLAGS) $(CRYPTO_CFLAGS)

policyconfdir = $(sysconfdir)/cove
dist_policyconf_DATA = policy/policy.conf
profilesdir = $(pkgdatadir)/profiles
dist_profiles_DATA = policy/profiles/default.conf policy/profiles/strict.conf \
	policy/profiles/build.conf
dist_man_MANS += man/cove-policy.1 man/policy.conf.5
EXTRA_DIST += policy/README.md docs/POLICY.md

noinst_PROGRAMS += policy-bench
policy_bench_SOURCES = bench/policy_bench.c
policy_bench_CPPFLAGS = $(AM_CPPFLAGS) -DBENCH_POLICY='"$(abs_top_srcdir)/policy/policy.conf"'
policy_bench_LDADD = libpolicy.a libbase.a $(PCRE2_LIBS) $(SECCOMP_LIBS) $(CRYPTO_LIBS) -lpthread
