noinst_LIBRARIES += libnet.a
libnet_a_SOURCES = \
	sandbox/net/net.h sandbox/net/net_private.h sandbox/net/net.c sandbox/net/dns_sockets.c sandbox/net/netfilter.c sandbox/net/rules.c sandbox/net/rtnl.c \
	sandbox/net/uplink.c sandbox/net/setup.c sandbox/net/watch.c
EXTRA_DIST += sandbox/net/README.md
