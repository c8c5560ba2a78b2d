pkglibexec_PROGRAMS += cove-starter
cove_starter_SOURCES = helpers/starter/starter.c helpers/starter/start_box.h helpers/starter/start_box.c include/cove/dialect.h
cove_starter_LDADD = libprocess.a libclient.a libdeny.a libshell.a libaudit.a libbase.a $(PCRE2_LIBS) $(CRYPTO_LIBS) $(SECCOMP_LIBS) -lpthread
EXTRA_DIST += helpers/starter/README.md
