if HAVE_CMOCKA
UNIT_TESTS += tests/unit/test_config tests/unit/test_state tests/unit/test_sweep tests/unit/test_tree_copy tests/unit/test_disk_project tests/unit/test_cgroup
tests_unit_test_config_SOURCES = tests/unit/test_config.c
tests_unit_test_config_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_state_SOURCES = tests/unit/test_state.c
tests_unit_test_state_LDADD = libclient.a libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_state_hostile
tests_unit_test_state_hostile_SOURCES = tests/unit/test_state_hostile.c
tests_unit_test_state_hostile_LDADD = libclient.a libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_state_steps
tests_unit_test_state_steps_SOURCES = tests/unit/test_state_steps.c tests/unit/stepped.h
tests_unit_test_state_steps_LDADD = libclient.a libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_box_wire
tests_unit_test_box_wire_SOURCES = tests/unit/test_box_wire.c
tests_unit_test_box_wire_LDADD = libclient.a libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_hostile_init
tests_unit_test_hostile_init_SOURCES = tests/unit/test_hostile_init.c
tests_unit_test_hostile_init_LDADD = libclient.a libbase.a $(UNIT_LIBS) -lpthread
tests_unit_test_hostile_init_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_boot_ms
UNIT_TESTS += tests/unit/test_empty_ns
tests_unit_test_empty_ns_SOURCES = tests/unit/test_empty_ns.c
tests_unit_test_empty_ns_LDADD = libbox.a libbase.a $(UNIT_LIBS)
tests_unit_test_tree_copy_SOURCES = tests/unit/test_tree_copy.c
tests_unit_test_tree_copy_LDADD = libbox.a libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_unpack
tests_unit_test_unpack_SOURCES = tests/unit/test_unpack.c
tests_unit_test_unpack_LDADD = liblayer.a libbox.a libbase.a $(ARCHIVE_LIBS) $(CRYPTO_LIBS) $(UNIT_LIBS)
tests_unit_test_disk_project_SOURCES = tests/unit/test_disk_project.c
tests_unit_test_disk_project_LDADD = libbox.a libbase.a $(UNIT_LIBS)
tests_unit_test_disk_project_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=project_check -Wl,--wrap=project_get -Wl,--wrap=project_set -Wl,--wrap=project_mark
tests_unit_test_sweep_SOURCES = tests/unit/test_sweep.c
tests_unit_test_sweep_CPPFLAGS = $(AM_CPPFLAGS)
tests_unit_test_sweep_LDADD = libbox.a libbase.a $(UNIT_LIBS)
tests_unit_test_cgroup_SOURCES = tests/unit/test_cgroup.c
tests_unit_test_cgroup_CPPFLAGS = $(AM_CPPFLAGS)
tests_unit_test_cgroup_LDADD = libbox.a libbase.a $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_rtnl
tests_unit_test_rtnl_SOURCES = tests/unit/test_rtnl.c
tests_unit_test_rtnl_LDADD = libnet.a libbase.a $(MNL_LIBS) $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_manifest
tests_unit_test_manifest_SOURCES = tests/unit/test_manifest.c
tests_unit_test_manifest_LDADD = libbase.a $(UNIT_LIBS)

UNIT_TESTS += tests/unit/test_netlist tests/unit/test_dns tests/unit/test_resolver_allow
tests_unit_test_netlist_SOURCES = tests/unit/test_netlist.c
tests_unit_test_netlist_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_dns_SOURCES = tests/unit/test_dns.c helpers/resolver/dns.c
tests_unit_test_dns_CPPFLAGS = $(AM_CPPFLAGS)
tests_unit_test_dns_LDADD = $(UNIT_LIBS)
tests_unit_test_resolver_allow_SOURCES = tests/unit/test_resolver_allow.c helpers/resolver/allow.c
tests_unit_test_resolver_allow_CPPFLAGS = $(AM_CPPFLAGS)
tests_unit_test_resolver_allow_LDADD = libbase.a $(UNIT_LIBS)
endif
