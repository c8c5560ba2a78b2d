EXTRA_DIST += debian/changelog debian/control debian/rules debian/copyright debian/source/format debian/cove.dirs \
	debian/cove.logrotate debian/cove.postinst debian/cove.postrm
