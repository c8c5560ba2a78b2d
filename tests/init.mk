# The protocol (base/msg.c, base/end.c), the log rings and the real cove-init binary.
if HAVE_CMOCKA
UNIT_TESTS += tests/unit/test_msg tests/unit/test_end tests/unit/test_ring \
	tests/unit/test_init tests/unit/test_init_ends tests/unit/test_init_logs \
	tests/unit/test_init_judge tests/unit/test_init_files tests/unit/test_init_spare \
	tests/unit/test_init_held tests/unit/test_init_filter tests/unit/test_init_idle
tests_unit_test_msg_SOURCES = tests/unit/test_msg.c
tests_unit_test_msg_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_end_SOURCES = tests/unit/test_end.c
tests_unit_test_end_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_ring_SOURCES = tests/unit/test_ring.c sandbox/client/ring.c include/cove/ring.h
tests_unit_test_ring_LDADD = libbase.a $(UNIT_LIBS)

check_LIBRARIES = tests/unit/libinit_fixture.a
tests_unit_libinit_fixture_a_SOURCES = tests/unit/init_fixture.c tests/unit/init_fixture.h \
	tests/unit/init_filters.h
tests_unit_libinit_fixture_a_CPPFLAGS = $(AM_CPPFLAGS) \
	-DCOVE_INIT_PATH='"$(abs_top_builddir)/cove-init"'
INIT_TEST_LIBS = tests/unit/libinit_fixture.a libbase.a
tests_unit_test_init_SOURCES = tests/unit/test_init.c
tests_unit_test_init_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_ends_SOURCES = tests/unit/test_init_ends.c
tests_unit_test_init_ends_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_ends_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_logs_SOURCES = tests/unit/test_init_logs.c sandbox/client/ring.c
tests_unit_test_init_logs_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_logs_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_judge_SOURCES = tests/unit/test_init_judge.c
tests_unit_test_init_judge_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_judge_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_spare_SOURCES = tests/unit/test_init_spare.c
tests_unit_test_init_spare_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_spare_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_files_SOURCES = tests/unit/test_init_files.c
tests_unit_test_init_files_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_files_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_idle_SOURCES = tests/unit/test_init_idle.c
tests_unit_test_init_idle_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_idle_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_held_SOURCES = tests/unit/test_init_held.c
tests_unit_test_init_held_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_held_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
tests_unit_test_init_filter_SOURCES = tests/unit/test_init_filter.c
tests_unit_test_init_filter_CPPFLAGS = $(AM_CPPFLAGS) -DSOURCE_DIR='"$(abs_top_srcdir)"'
tests_unit_test_init_filter_LDADD = $(INIT_TEST_LIBS) $(UNIT_LIBS)
tests_unit_test_init_filter_DEPENDENCIES = $(INIT_TEST_LIBS) cove-init$(EXEEXT)
endif
