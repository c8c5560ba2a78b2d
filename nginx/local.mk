# The site as templates: quickstart and the package fill in paths, ports and the domain.
nginxdir = $(pkgdatadir)/nginx
dist_nginx_DATA = nginx/cove.conf nginx/nginx-private.conf
nginxsnippetsdir = $(nginxdir)/snippets
dist_nginxsnippets_DATA = nginx/snippets/cove-server.conf nginx/snippets/cove-auth.conf nginx/snippets/cove-error.conf \
	nginx/snippets/cove-fastcgi.conf nginx/snippets/cove-attach.conf nginx/snippets/cove-api.conf \
	nginx/snippets/cove-unbuffered.conf nginx/snippets/cove-traffic.conf nginx/snippets/cove-traffic-asked.conf nginx/snippets/cove-port.conf
EXTRA_DIST += nginx/README.md
