pkglibexec_PROGRAMS += cove-gate
cove_gate_SOURCES = gate/gate.c gate/bindings.c gate/relay.c gate/succession.c gate/gate_private.h
cove_gate_LDADD = libclient.a libbase.a
EXTRA_DIST += gate/README.md
