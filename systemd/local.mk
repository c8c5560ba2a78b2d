# Installed as data; the package puts them where systemd looks.
systemddir = $(pkgdatadir)/systemd
systemd_DATA = systemd/cove.service
dist_systemd_DATA = systemd/cove-sandboxes.service systemd/cove.socket systemd/cove.slice systemd/cove.sysusers systemd/cove.tmpfiles
EXTRA_DIST += systemd/cove.service.in
CLEANFILES += systemd/cove.service

systemd/cove.service: systemd/cove.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(SED) -e 's|@sbindir[@]|$(sbindir)|g' \
	    -e 's|@sysconfdir[@]|$(sysconfdir)|g' $(srcdir)/systemd/cove.service.in > $@
