# The caller's side: how workers, helpers and the operators' tool talk to the keeper, to inits and to the shared tables.
noinst_LIBRARIES += libclient.a
libclient_a_SOURCES = \
	include/cove/client.h include/cove/state.h include/cove/ring.h include/cove/meters.h include/cove/samples.h include/cove/notes.h include/cove/replay.h include/cove/endings.h include/cove/which.h \
	include/cove/box_wire.h sandbox/client/client_private.h sandbox/client/wire.c sandbox/client/client.c \
	sandbox/client/keeper.c sandbox/client/gate.c sandbox/client/procs.c \
	sandbox/client/files.c sandbox/client/state_private.h sandbox/client/state.c \
	sandbox/client/state_boxes.c sandbox/client/state_workers.c sandbox/client/ring.c sandbox/client/meters.c sandbox/client/samples.c sandbox/client/notes.c sandbox/client/replay.c sandbox/client/endings.c \
	sandbox/client/which.c sandbox/client/saved.c include/cove/saved.h include/cove/bucket.h
EXTRA_DIST += sandbox/client/README.md
