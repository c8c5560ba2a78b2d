noinst_LIBRARIES += libbase.a
# json-c is needed only by programs that read JSON: nothing else pulls json_parse.o and json_read.o out of the archive.
libbase_a_CPPFLAGS = $(AM_CPPFLAGS) $(JSONC_CFLAGS)
libbase_a_SOURCES = \
	include/cove/err.h include/cove/mem.h include/cove/budget.h include/cove/buf.h include/cove/text.h \
	include/cove/log.h include/cove/end.h include/cove/msg.h include/cove/msg_box.h include/cove/msg_keeper.h include/cove/msg_gate.h include/cove/msg_helpers.h include/cove/names.h include/cove/config.h include/cove/netlist.h include/cove/loop.h include/cove/file.h \
	include/cove/json.h include/cove/manifest.h include/cove/base64.h include/cove/build.h \
	base/err.c base/mem.c base/budget.c base/buf.c base/text.c base/log.c base/end.c base/msg.c base/config.c base/config_check.c base/netlist.c base/loop.c base/file.c \
	base/manifest.c base/manifests.c base/json_parse.c base/json_read.c base/json_write.c base/base64.c base/dialect.c include/cove/dialect.h base/record.c include/cove/record.h
EXTRA_DIST += base/README.md
