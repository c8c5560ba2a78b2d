noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	include/cove/err.h include/cove/mem.h include/cove/buf.h include/cove/text.h \
	include/cove/log.h include/cove/end.h include/cove/msg.h include/cove/config.h include/cove/netlist.h include/cove/loop.h \
	base/err.c base/mem.c base/buf.c base/text.c base/log.c base/end.c base/msg.c base/config.c base/netlist.c base/loop.c
