pkglibexec_PROGRAMS += cove-auth
cove_auth_SOURCES = auth/auth.c auth/backoff.h auth/backoff.c auth/pam.h auth/pam.c
cove_auth_LDADD = libbase.a -lpam
pamdatadir = $(pkgdatadir)/pam.d
pamdata_DATA = auth/cove
EXTRA_DIST += auth/README.md auth/cove.pam
CLEANFILES += auth/cove

auth/cove: auth/cove.pam
	$(AM_V_GEN)$(MKDIR_P) auth && cp $(srcdir)/auth/cove.pam $@
