# Keys, tenants and their quotas: one parser for keeper, workers and the operators' tool.
noinst_LIBRARIES += libkeys.a
libkeys_a_SOURCES = include/cove/keys.h keys/keys_private.h include/cove/limits.h keys/lines.c keys/keys.c keys/names.c keys/scope.c keys/limits.c \
	keys/store.c
libkeys_a_SOURCES += keys/token.c include/cove/operators.h keys/operators.c
libkeys_a_CFLAGS = $(AM_CFLAGS) $(CRYPTO_CFLAGS)
EXTRA_DIST += keys/README.md
