pkglibexec_PROGRAMS += cove-judge
cove_judge_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(SECCOMP_CFLAGS)
cove_judge_SOURCES = judge/judge.c include/cove/dialect.h fcgi/confine.h fcgi/confine.c \
	fcgi/confine_files.c
cove_judge_LDADD = libclient.a libpolicy.a libbase.a $(PCRE2_LIBS) $(CRYPTO_LIBS) $(SECCOMP_LIBS)
EXTRA_DIST += judge/README.md
