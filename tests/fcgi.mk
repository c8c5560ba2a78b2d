# Others' clients (./quickstart test --only clients).
EXTRA_DIST += tests/clients/README.md tests/clients/package.json tests/clients/package-lock.json \
	tests/clients/test_clients.py tests/clients/helper.mjs tests/clients/sandbox.test.mjs \
	tests/clients/commands.test.mjs tests/clients/pty.test.mjs tests/clients/files.test.mjs

# Unit tests of fcgi/. They link the core and what is below it; nothing here needs a sandbox, nginx or root.
if HAVE_CMOCKA
FCGI_TESTS = tests/unit/test_json tests/unit/test_router tests/unit/test_slots tests/unit/test_kept tests/unit/test_wire tests/unit/test_auth tests/unit/test_console_session \
	tests/unit/test_run tests/unit/test_execute tests/unit/test_confine tests/unit/test_lines tests/unit/test_stream tests/unit/test_which tests/unit/test_core_session tests/unit/test_e2b_signed tests/unit/test_saved tests/unit/test_saver tests/unit/test_connect tests/unit/test_multipart tests/unit/test_fetch_address
UNIT_TESTS += $(FCGI_TESTS)
FCGI_TEST_CPPFLAGS = $(libfcgicore_a_CPPFLAGS)
FCGI_TEST_LDADD = $(FCGICORE_LIBS) $(UNIT_LIBS)

tests_unit_test_json_SOURCES = tests/unit/test_json.c tests/unit/fcgi_request.h
tests_unit_test_json_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_json_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_router_SOURCES = tests/unit/test_router.c
tests_unit_test_router_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_router_LDADD = $(FCGI_TEST_LDADD)

tests_unit_test_wire_SOURCES = tests/unit/test_wire.c
tests_unit_test_wire_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_wire_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_kept_SOURCES = tests/unit/test_kept.c
tests_unit_test_kept_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_kept_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_slots_SOURCES = tests/unit/test_slots.c
tests_unit_test_slots_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_slots_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_console_session_SOURCES = tests/unit/test_console_session.c
tests_unit_test_console_session_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_console_session_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_auth_SOURCES = tests/unit/test_auth.c
tests_unit_test_auth_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_auth_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_run_SOURCES = tests/unit/test_run.c
tests_unit_test_run_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_run_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_execute_SOURCES = tests/unit/test_execute.c
tests_unit_test_execute_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_execute_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_lines_SOURCES = tests/unit/test_lines.c tests/unit/fcgi_request.h
tests_unit_test_lines_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_lines_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_confine_SOURCES = tests/unit/test_confine.c
tests_unit_test_confine_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_confine_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_fetch_address_SOURCES = tests/unit/test_fetch_address.c
tests_unit_test_fetch_address_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
tests_unit_test_fetch_address_LDADD = libfetch.a libbase.a $(UNIT_LIBS)
tests_unit_test_multipart_SOURCES = tests/unit/test_multipart.c
tests_unit_test_multipart_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_multipart_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_connect_SOURCES = tests/unit/test_connect.c tests/unit/fcgi_request.h
tests_unit_test_connect_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_connect_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_stream_SOURCES = tests/unit/test_stream.c tests/unit/fcgi_request.h
tests_unit_test_stream_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_stream_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_saver_SOURCES = tests/unit/test_saver.c helpers/saver/pack.c helpers/saver/unpack.c helpers/saver/read_back.c helpers/saver/digest.c
tests_unit_test_saver_LDFLAGS = -Wl,--wrap=read_back_end
tests_unit_test_saver_LDADD = libclient.a libbase.a $(ARCHIVE_LIBS) $(NETTLE_LIBS) $(UNIT_LIBS) -lpthread
tests_unit_test_saved_SOURCES = tests/unit/test_saved.c
tests_unit_test_saved_LDADD = libclient.a libbase.a $(CRYPTO_LIBS) $(UNIT_LIBS)
tests_unit_test_core_session_SOURCES = tests/unit/test_core_session.c tests/unit/state_fixture.h
tests_unit_test_core_session_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_core_session_LDFLAGS = -Wl,--wrap=keeper_retire
tests_unit_test_core_session_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_e2b_signed_SOURCES = tests/unit/test_e2b_signed.c tests/unit/fcgi_request.h tests/unit/state_fixture.h
tests_unit_test_e2b_signed_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_e2b_signed_LDADD = $(FCGI_TEST_LDADD)
tests_unit_test_which_SOURCES = tests/unit/test_which.c tests/unit/fcgi_request.h tests/unit/state_fixture.h
tests_unit_test_which_CPPFLAGS = $(FCGI_TEST_CPPFLAGS)
tests_unit_test_which_LDADD = $(FCGI_TEST_LDADD)
endif
