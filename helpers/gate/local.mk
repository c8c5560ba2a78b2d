pkglibexec_PROGRAMS += cove-gate
cove_gate_SOURCES = helpers/gate/gate_private.h helpers/gate/gate.c helpers/gate/relay.c helpers/gate/connect.c helpers/gate/bindings.c \
	helpers/gate/hosts.c helpers/gate/access.c helpers/gate/answer.c helpers/gate/handover.c \
	helpers/gate/websocket.h helpers/gate/websocket.c helpers/gate/attach.h helpers/gate/attach.c \
	helpers/gate/viewer.c helpers/gate/terminal.c helpers/gate/lines.c \
	helpers/gate/sockets.c helpers/gate/callers.c helpers/gate/shares.c
cove_gate_LDADD = libprocess.a libkeys.a libclient.a libbase.a $(SECCOMP_LIBS) $(CRYPTO_LIBS) $(JSONC_LIBS) -lwslay -lm
EXTRA_DIST += helpers/README.md helpers/gate/README.md
