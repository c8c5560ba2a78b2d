pkglibexec_PROGRAMS += cove-builder
cove_builder_SOURCES = helpers/builder/builder_private.h helpers/builder/builder.c helpers/builder/builds.c helpers/builder/logs.c \
	helpers/builder/files.c helpers/builder/order.c helpers/builder/build.c helpers/builder/cache.c helpers/builder/command.c helpers/builder/steps.c \
	helpers/builder/image.c
cove_builder_LDADD = libprocess.a libclient.a libdeny.a libshell.a libaudit.a libbase.a $(PCRE2_LIBS) $(CRYPTO_LIBS) $(SECCOMP_LIBS) $(JSONC_LIBS) -lpthread
EXTRA_DIST += helpers/builder/README.md
