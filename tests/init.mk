# The protocol (base/msg.c, base/end.c), the log rings and the real cove-init binary.
if HAVE_CMOCKA
UNIT_TESTS += tests/unit/test_msg tests/unit/test_end tests/unit/test_ring
tests_unit_test_msg_SOURCES = tests/unit/test_msg.c
tests_unit_test_msg_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_end_SOURCES = tests/unit/test_end.c
tests_unit_test_end_LDADD = libbase.a $(UNIT_LIBS)
tests_unit_test_ring_SOURCES = tests/unit/test_ring.c sandbox/ring.c include/cove/ring.h
tests_unit_test_ring_LDADD = libbase.a $(UNIT_LIBS)
endif
