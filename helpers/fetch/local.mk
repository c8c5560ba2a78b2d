# Where a fetch may connect to: a library of its own, for its unit test and its fuzzer.
noinst_LIBRARIES += libfetch.a
libfetch_a_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
libfetch_a_SOURCES = helpers/fetch/fetch_private.h helpers/fetch/address.c

pkglibexec_PROGRAMS += cove-fetch
cove_fetch_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
cove_fetch_SOURCES = helpers/fetch/fetch.c helpers/fetch/transfer.c helpers/fetch/fetch_private.h
cove_fetch_LDADD = libfetch.a libprocess.a libbase.a $(SECCOMP_LIBS) $(CURL_LIBS)
EXTRA_DIST += helpers/fetch/README.md
