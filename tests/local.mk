# Each unit test links only what its folder may use, so a wrong arrow between layers fails to link.
UNIT_TESTS =
if HAVE_CMOCKA
UNIT_TESTS += tests/unit/test_base
tests_unit_test_base_SOURCES = tests/unit/test_base.c
tests_unit_test_base_LDADD = libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_loop tests/unit/test_file
tests_unit_test_file_SOURCES = tests/unit/test_file.c
tests_unit_test_file_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_loop_SOURCES = tests/unit/test_loop.c
tests_unit_test_loop_LDADD = libbase.a $(UNIT_LIBS)
endif
include tests/layers.mk
include tests/init.mk
include tests/policy.mk
include tests/sandbox.mk
include tests/keeper.mk
include tests/fcgi.mk
include tests/front.mk
check_PROGRAMS += $(UNIT_TESTS)
TESTS += $(UNIT_TESTS)
# Whole folders, so that no file of theirs can be forgotten; what Python leaves in them is not packed.
EXTRA_DIST += tests/README.md tests/unit/README.md tests/mutants tests/pytest.ini tests/conftest.py tests/system tests/clients tests/escape tests/hostile tests/fuzz tests/lint \
	tests/vm tests/deb
dist-hook:
	find $(distdir) -name __pycache__ -prune -exec rm -rf {} +
