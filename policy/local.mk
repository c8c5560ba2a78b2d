# Four subjects, four libraries. libdeny uses libshell; libprofile and libaudit use neither.
noinst_LIBRARIES += libshell.a libdeny.a libprofile.a libaudit.a
libshell_a_SOURCES = \
	policy/shell/lexer.h policy/shell/lexer_private.h policy/shell/lexer.c policy/shell/quote.c \
	policy/shell/expand.c policy/shell/brace.c policy/shell/redirect.c policy/shell/shell.c \
	policy/shell/unwrap.c policy/shell/wrappers.c policy/shell/builtins.c policy/shell/param.c policy/shell/vars.c policy/shell/output.c
libdeny_a_SOURCES = \
	include/cove/policy.h policy/deny/policy_private.h policy/deny/file.c policy/deny/parse.c \
	policy/deny/scope.c policy/deny/match.c policy/deny/prefilter.c policy/deny/settings.c \
	policy/deny/policy.c policy/deny/deny.c policy/deny/lint.c
libdeny_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(CRYPTO_CFLAGS)
libprofile_a_SOURCES = \
	include/cove/seccomp_profile.h policy/seccomp/profile_private.h policy/seccomp/profile.c \
	policy/seccomp/profile_condition.c policy/seccomp/profile_compile.c policy/seccomp/profile_list.c
libprofile_a_CFLAGS = $(AM_CFLAGS) $(SECCOMP_CFLAGS)
libaudit_a_SOURCES = \
	include/cove/audit.h policy/audit/audit_private.h policy/audit/audit.c policy/audit/audit_file.c \
	policy/audit/audit_line.c policy/audit/audit_rate.c policy/audit/audit_verify.c policy/audit/redact.c
libaudit_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(CRYPTO_CFLAGS)
POLICY_LIBS = libdeny.a libshell.a libprofile.a libaudit.a

policyconfdir = $(sysconfdir)/cove
dist_policyconf_DATA = policy/policy.conf
profilesdir = $(pkgdatadir)/profiles
dist_profiles_DATA = policy/profiles/default.conf policy/profiles/strict.conf \
	policy/profiles/build.conf
dist_man_MANS += man/cove-policy.1 man/policy.conf.5
EXTRA_DIST += policy/README.md policy/shell/README.md policy/deny/README.md policy/seccomp/README.md policy/audit/README.md

noinst_PROGRAMS += policy-bench
policy_bench_SOURCES = bench/policy_bench.c
policy_bench_CPPFLAGS = $(AM_CPPFLAGS) -DBENCH_POLICY='"$(abs_top_srcdir)/policy/policy.conf"'
policy_bench_LDADD = $(POLICY_LIBS) libbase.a $(PCRE2_LIBS) $(SECCOMP_LIBS) $(CRYPTO_LIBS) -lpthread
