pkglibexec_PROGRAMS += cove-resolver
cove_resolver_SOURCES = helpers/resolver/resolver.c helpers/resolver/clients.c helpers/resolver/jobs.c helpers/resolver/allow.c \
	helpers/resolver/dns.c helpers/resolver/dns.h helpers/resolver/resolver_private.h
cove_resolver_LDADD = libprocess.a libbase.a $(SECCOMP_LIBS)
EXTRA_DIST += helpers/resolver/README.md
