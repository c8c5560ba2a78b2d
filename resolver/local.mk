pkglibexec_PROGRAMS += cove-resolver
cove_resolver_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(SECCOMP_CFLAGS)
cove_resolver_SOURCES = resolver/resolver.c resolver/clients.c resolver/jobs.c resolver/dns.c \
	resolver/dns.h resolver/resolver_private.h fcgi/confine.h fcgi/confine.c fcgi/confine_files.c
cove_resolver_LDADD = libbase.a $(SECCOMP_LIBS)
EXTRA_DIST += resolver/README.md
