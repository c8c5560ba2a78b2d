covesysconfdir = $(sysconfdir)/cove
dist_covesysconf_DATA = conf/cove.conf
