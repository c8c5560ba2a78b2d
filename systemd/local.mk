# Installed as data; the package puts them where systemd looks.
systemddir = $(pkgdatadir)/systemd
systemd_DATA = systemd/cove.service
dist_systemd_DATA = systemd/cove-sandboxes.service systemd/cove.socket systemd/cove.slice systemd/cove.sysusers systemd/cove.tmpfiles
EXTRA_DIST += systemd/cove.service.in
CLEANFILES += systemd/cove.service

# Without libsystemd coved cannot say that it is ready or alive: systemd must not wait for such words.
if HAVE_LIBSYSTEMD
SERVICE_SPEAKS =
else
SERVICE_SPEAKS = -e 's|^Type=notify|Type=exec|' -e '/^WatchdogSec=/d' -e '/^FileDescriptorStoreMax=/d'
endif

systemd/cove.service: systemd/cove.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(SED) -e 's|@sbindir[@]|$(sbindir)|g' \
	    -e 's|@sysconfdir[@]|$(sysconfdir)|g' $(SERVICE_SPEAKS) $(srcdir)/systemd/cove.service.in > $@
