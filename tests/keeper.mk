# The keeper's files, with the kernel's side replaced (tests/unit/keeper_fixture.c).
KEEPER_TEST_SOURCES = tests/unit/keeper_fixture.c tests/unit/keeper_fixture.h
KEEPER_TEST_WRAPS = -Wl,--wrap=clock_boot_ms -Wl,--wrap=build_start \
	-Wl,--wrap=template_open -Wl,--wrap=template_sweep_old -Wl,--wrap=cgroup_freeze_begin -Wl,--wrap=cgroup_is_frozen \
	-Wl,--wrap=cgroup_limit_box -Wl,--wrap=cgroup_kill_box -Wl,--wrap=cgroup_remove_box \
	-Wl,--wrap=cgroup_has_pid -Wl,--wrap=cgroup_each_box -Wl,--wrap=cgroup_cpu_usec \
	-Wl,--wrap=cgroup_count_pids -Wl,--wrap=cgroup_limit_pids \
	-Wl,--wrap=disk_wants_more
if HAVE_CMOCKA
UNIT_TESTS += tests/unit/test_keeper_boxes tests/unit/test_keeper_claim tests/unit/test_keeper_expiry tests/unit/test_keeper_adopt \
	tests/unit/test_keeper_pool tests/unit/test_keeper_publish tests/unit/test_keeper_ended tests/unit/test_keeper_processes tests/unit/test_keeper_jobs
tests_unit_test_keeper_boxes_SOURCES = tests/unit/test_keeper_boxes.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_boxes_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_boxes_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_ended_SOURCES = tests/unit/test_keeper_ended.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_ended_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_ended_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_processes_SOURCES = tests/unit/test_keeper_processes.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_processes_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_processes_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_jobs_SOURCES = tests/unit/test_keeper_jobs.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_jobs_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_jobs_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_claim_SOURCES = tests/unit/test_keeper_claim.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_claim_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_claim_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_expiry_SOURCES = tests/unit/test_keeper_expiry.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_expiry_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_expiry_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_adopt_SOURCES = tests/unit/test_keeper_adopt.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_adopt_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_adopt_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_pool_SOURCES = tests/unit/test_keeper_pool.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_pool_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS)
tests_unit_test_keeper_pool_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
tests_unit_test_keeper_publish_SOURCES = tests/unit/test_keeper_publish.c $(KEEPER_TEST_SOURCES)
tests_unit_test_keeper_publish_LDFLAGS = $(AM_LDFLAGS) $(KEEPER_TEST_WRAPS) -Wl,--wrap=policy_bundle_read
tests_unit_test_keeper_publish_LDADD = $(KEEPER_LIBS) $(UNIT_LIBS)
endif
