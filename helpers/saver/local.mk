pkglibexec_PROGRAMS += cove-saver
cove_saver_SOURCES = helpers/saver/saver.c helpers/saver/pack.c helpers/saver/unpack.c helpers/saver/read_back.c helpers/saver/digest.c \
	helpers/saver/saver_private.h
cove_saver_LDADD = libprocess.a libclient.a libbase.a $(ARCHIVE_LIBS) $(NETTLE_LIBS) $(SECCOMP_LIBS) -lpthread
EXTRA_DIST += helpers/saver/README.md
