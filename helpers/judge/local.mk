pkglibexec_PROGRAMS += cove-judge
cove_judge_SOURCES = helpers/judge/judge.c helpers/judge/verdict.c helpers/judge/judge_private.h \
	include/cove/dialect.h
cove_judge_LDADD = libprocess.a libclient.a libdeny.a libshell.a libaudit.a libbase.a $(PCRE2_LIBS) $(CRYPTO_LIBS) $(SECCOMP_LIBS) -lpthread
EXTRA_DIST += helpers/judge/README.md
