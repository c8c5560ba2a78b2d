# Unit tests of policy/: they link policy and base, so a wrong arrow between layers fails here.
if HAVE_CMOCKA
POLICY_TESTS = tests/unit/test_lexer \
	tests/unit/test_deny \
	tests/unit/test_deny_rules \
	tests/unit/test_deny_bounds \
	tests/unit/test_policy_file \
	tests/unit/test_policy_lint \
	tests/unit/test_profile \
	tests/unit/test_profile_compile \
	tests/unit/test_audit \
	tests/unit/test_policy_cli
UNIT_TESTS += $(POLICY_TESTS)
POLICY_LDADD = $(POLICY_LIBS) libbase.a $(PCRE2_LIBS) $(SECCOMP_LIBS) $(CRYPTO_LIBS) $(UNIT_LIBS) \
	-lpthread
POLICY_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_SRCDIR='"$(abs_top_srcdir)"'

tests_unit_test_lexer_SOURCES = tests/unit/test_lexer.c
tests_unit_test_lexer_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_lexer_LDADD = $(POLICY_LDADD)
DENY_FIXTURE = tests/unit/deny_fixture.h tests/unit/deny_fixture.c
tests_unit_test_deny_SOURCES = tests/unit/test_deny.c $(DENY_FIXTURE)
tests_unit_test_deny_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_deny_LDADD = $(POLICY_LDADD)
tests_unit_test_deny_rules_SOURCES = tests/unit/test_deny_rules.c $(DENY_FIXTURE)
tests_unit_test_deny_rules_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_deny_rules_LDADD = $(POLICY_LDADD)
tests_unit_test_deny_bounds_SOURCES = tests/unit/test_deny_bounds.c $(DENY_FIXTURE)
tests_unit_test_deny_bounds_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_deny_bounds_LDADD = $(POLICY_LDADD)
tests_unit_test_policy_file_SOURCES = tests/unit/test_policy_file.c
tests_unit_test_policy_file_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_policy_file_LDADD = $(POLICY_LDADD)
tests_unit_test_policy_lint_SOURCES = tests/unit/test_policy_lint.c
tests_unit_test_policy_lint_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_policy_lint_LDADD = $(POLICY_LDADD)
tests_unit_test_profile_SOURCES = tests/unit/test_profile.c
tests_unit_test_profile_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_profile_LDADD = $(POLICY_LDADD)
tests_unit_test_profile_compile_SOURCES = tests/unit/test_profile_compile.c
tests_unit_test_profile_compile_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_profile_compile_LDADD = $(POLICY_LDADD)
tests_unit_test_audit_SOURCES = tests/unit/test_audit.c
tests_unit_test_audit_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_audit_LDADD = $(POLICY_LDADD)
tests_unit_test_policy_cli_SOURCES = tests/unit/test_policy_cli.c
tests_unit_test_policy_cli_CPPFLAGS = $(POLICY_CPPFLAGS) -DCOVE_PROGRAM='"$(abs_top_builddir)/cove"'
tests_unit_test_policy_cli_LDADD = $(POLICY_LDADD)
endif

# Lexer, policy and profile parsers under libFuzzer; needs clang.
.PHONY: check-fuzz
check-fuzz:
	$(top_srcdir)/tests/fuzz/run.sh fuzz $(FUZZ_SECONDS)
FUZZ_SECONDS = 20
