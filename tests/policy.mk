# Unit tests of policy/: they link policy and base, so a wrong arrow between layers fails here.
if HAVE_CMOCKA
POLICY_TESTS = tests/unit/test_lexer tests/unit/test_deny tests/unit/test_policy_file
UNIT_TESTS += $(POLICY_TESTS)
POLICY_LDADD = libpolicy.a libbase.a $(PCRE2_LIBS) $(SECCOMP_LIBS) $(CRYPTO_LIBS) $(UNIT_LIBS)
POLICY_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/policy -DTEST_SRCDIR='"$(abs_top_srcdir)"'

tests_unit_test_lexer_SOURCES = tests/unit/test_lexer.c
tests_unit_test_lexer_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_lexer_LDADD = $(POLICY_LDADD)
tests_unit_test_deny_SOURCES = tests/unit/test_deny.c
tests_unit_test_deny_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_deny_LDADD = $(POLICY_LDADD)
tests_unit_test_policy_file_SOURCES = tests/unit/test_policy_file.c
tests_unit_test_policy_file_CPPFLAGS = $(POLICY_CPPFLAGS)
tests_unit_test_policy_file_LDADD = $(POLICY_LDADD)
endif
