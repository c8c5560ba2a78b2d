# Unit tests of keys/, of what workers measure, and of the gate.
if HAVE_CMOCKA
UNIT_TESTS += tests/unit/test_keys tests/unit/test_meters tests/unit/test_samples tests/unit/test_notes tests/unit/test_replay tests/unit/test_signin tests/unit/test_gate_attach tests/unit/test_websocket
tests_unit_test_keys_SOURCES = tests/unit/test_keys.c
tests_unit_test_keys_LDADD = libkeys.a libbase.a $(CRYPTO_LIBS) $(UNIT_LIBS)
tests_unit_test_samples_SOURCES = tests/unit/test_samples.c
tests_unit_test_samples_LDADD = libclient.a libbase.a $(UNIT_LIBS)
tests_unit_test_meters_SOURCES = tests/unit/test_meters.c
tests_unit_test_meters_LDADD = libclient.a libbase.a $(UNIT_LIBS)
tests_unit_test_replay_SOURCES = tests/unit/test_replay.c tests/unit/stepped.h
tests_unit_test_replay_LDADD = libclient.a libbase.a $(UNIT_LIBS)
tests_unit_test_notes_SOURCES = tests/unit/test_notes.c
tests_unit_test_notes_LDADD = libclient.a libbase.a $(UNIT_LIBS)
tests_unit_test_gate_attach_SOURCES = tests/unit/test_gate_attach.c helpers/gate/attach.c helpers/gate/attach.h
tests_unit_test_gate_attach_LDFLAGS = -Wl,--wrap=box_connect_now
tests_unit_test_gate_attach_LDADD = libclient.a libbase.a $(UNIT_LIBS)
tests_unit_test_websocket_SOURCES = tests/unit/test_websocket.c helpers/gate/websocket.c helpers/gate/websocket.h
tests_unit_test_websocket_LDADD = libclient.a libbase.a $(UNIT_LIBS) -lwslay
tests_unit_test_signin_SOURCES = tests/unit/test_signin.c helpers/auth/backoff.c
tests_unit_test_signin_CPPFLAGS = $(libfcgicore_a_CPPFLAGS)
tests_unit_test_signin_LDADD = $(FCGICORE_LIBS) $(UNIT_LIBS)
endif
