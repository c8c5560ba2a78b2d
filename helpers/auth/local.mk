pkglibexec_PROGRAMS += cove-auth
cove_auth_SOURCES = helpers/auth/auth.c helpers/auth/backoff.h helpers/auth/backoff.c helpers/auth/cage.h helpers/auth/cage.c helpers/auth/pam.h helpers/auth/pam.c
cove_auth_LDADD = libprocess.a libbase.a $(SECCOMP_LIBS) -lpam
pamdatadir = $(pkgdatadir)/pam.d
pamdata_DATA = helpers/auth/cove
EXTRA_DIST += helpers/auth/README.md helpers/auth/cove.pam
CLEANFILES += helpers/auth/cove

helpers/auth/cove: helpers/auth/cove.pam
	$(AM_V_GEN)$(MKDIR_P) helpers/auth && cp $(srcdir)/helpers/auth/cove.pam $@
