pkglibexec_PROGRAMS += cove-gate
cove_gate_SOURCES = helpers/gate/gate.c helpers/gate/bindings.c helpers/gate/relay.c helpers/gate/handover.c helpers/gate/gate_private.h
cove_gate_LDADD = libclient.a libbase.a
EXTRA_DIST += helpers/gate/README.md
