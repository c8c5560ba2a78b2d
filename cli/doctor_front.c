/*
 * What is in front of the workers: nginx. Its own dump of the configuration says which site leads to
 * this instance's socket, where that site listens and which certificate it shows; then a request goes
 * through each listener, because only that shows that all of it works together.
 */
#include <libgen.h>
#include <limits.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cove/buf.h"
#include "cove/text.h"

enum { DUMP_MAX = 4 << 20, LISTENERS_MAX = 16, CERT_DAYS = 14 };

struct listener {
    char address[72];
    char port[8];
    bool tls;
};

struct site {
    struct listener listeners[LISTENERS_MAX];
    size_t count;
    char names[512]; /* of server_name, with blanks between them */
    char certificate[PATH_MAX];
};

/* Reads what a program writes to its standard output. Returns its exit status, or -1. */
static int run_and_read(const char *command, struct buf *out)
{
    FILE *f = popen(command, "re");
    char piece[4096];
    size_t n;
    int status;

    if (!f)
        return -1;
    while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
        buf_add(out, piece, n);
    status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* An instance that quickstart made has its nginx.conf beside cove.conf; others use nginx's own. */
static int dump_config(struct buf *out)
{
    char path[PATH_MAX], nginx_conf[PATH_MAX + 32], command[PATH_MAX + 128];

    text_copy(path, sizeof(path), cli_config_path());
    snprintf(nginx_conf, sizeof(nginx_conf), "%s/nginx.conf", dirname(path));
    if (access(nginx_conf, R_OK) == 0 && !strchr(nginx_conf, '\''))
        snprintf(command, sizeof(command), "nginx -T -q -c '%s' 2>/dev/null", nginx_conf);
    else
        snprintf(command, sizeof(command), "nginx -T -q 2>/dev/null");
    return run_and_read(command, out);
}

/* Finds the file in the dump that mentions the instance's socket; NULL if none does. */
static char *find_site(char *dump, const char *run_dir)
{
    static const char mark[] = "# configuration file ";
    char socket[160];
    char *file = strstr(dump, mark);

    snprintf(socket, sizeof(socket), "unix:%s/fcgi.sock", run_dir);
    while (file) {
        char *next = strstr(file + 1, mark), *hit;

        hit = strstr(file, socket);
        if (hit && (!next || hit < next)) {
            if (next)
                *next = '\0';
            return file;
        }
        file = next;
    }
    return NULL;
}

static void add_listener(struct site *s, char *words)
{
    struct listener *l = &s->listeners[s->count];
    char *end = strchr(words, ' '), *colon;

    if (s->count == LISTENERS_MAX || strncmp(words, "unix:", 5) == 0)
        return;
    *l = (struct listener){ .tls = end && strstr(end, "ssl") };
    if (end)
        *end = '\0';
    colon = strrchr(words, ':');
    if (colon && !strchr(colon, ']'))
        *colon = '\0';
    else
        colon = NULL;
    text_copy(l->port, sizeof(l->port), colon ? colon + 1 : words);
    text_copy(l->address, sizeof(l->address),
              !colon || strcmp(words, "*") == 0 || strcmp(words, "0.0.0.0") == 0 ? "127.0.0.1"
              : strcmp(words, "[::]") == 0                                       ? "[::1]"
                                                                                 : words);
    for (size_t i = 0; i < s->count; i++) /* the site's servers share their addresses */
        if (strcmp(s->listeners[i].address, l->address) == 0 &&
            strcmp(s->listeners[i].port, l->port) == 0)
            return;
    s->count++;
}

static void read_directive(struct site *s, char *line)
{
    char *word = line + strspn(line, " \t"), *value = word + strcspn(word, " \t"), *end;

    if (*value == '\0' || *word == '#' || !(end = strchr(value, ';')))
        return;
    *value++ = *end = '\0';
    value += strspn(value, " \t");
    if (strcmp(word, "listen") == 0)
        add_listener(s, value);
    else if (strcmp(word, "server_name") == 0 && !s->names[0])
        text_copy(s->names, sizeof(s->names), value);
    else if (strcmp(word, "ssl_certificate") == 0)
        text_copy(s->certificate, sizeof(s->certificate), value);
}

/* False if something is wrong: nginx is missing, does not accept its files, or has no such site. */
static bool read_site(const struct patient *p, struct site *ret, struct diagnosis *d)
{
    char *text, *line;
    struct buf dump;
    int rc;

    buf_init(&dump, DUMP_MAX);
    rc = dump_config(&dump);
    text = rc == 0 && dump.data ? find_site(dump.data, p->config.run_dir) : NULL;
    if (rc == 127) {
        found(d, FOUND_BROKEN, "nginx is not installed");
        fix(d, "apt install nginx");
    } else if (rc != 0) {
        found(d, FOUND_BROKEN, "nginx does not accept its configuration");
        fix(d, "`nginx -t` names the file and the line");
    } else if (!text) {
        found(d, FOUND_BROKEN, "nginx has no site that leads to %.80s/fcgi.sock",
              p->config.run_dir);
        fix(d, "install nginx/cove.conf from %s as a site and reload nginx", COVE_DATADIR);
    }
    *ret = (struct site){ 0 };
    while (text && (line = strsep(&text, "\n")))
        read_directive(ret, line);
    buf_done(&dump);
    return d->finding == FOUND_OK;
}

/* The first name of the site that is not a pattern. */
static void plain_name(const struct site *s, char *out, size_t size)
{
    char names[512], *rest = names, *name;

    text_copy(names, sizeof(names), s->names);
    text_copy(out, size, "localhost");
    while ((name = strsep(&rest, " "))) {
        if (*name && !strpbrk(name, "*~_'\"")) {
            text_copy(out, size, name);
            return;
        }
    }
}

/* The HTTP status of /health through one listener; 0: no answer. */
static int ask(const struct listener *l, const char *name)
{
    char command[1024];
    struct buf out;
    int status;

    snprintf(command, sizeof(command),
             "curl -sk --noproxy '*' --max-time 5 -o /dev/null -w '%%{http_code}' "
             "--connect-to '%s:%s:%s:%s' '%s://%s:%s/health' 2>/dev/null",
             name, l->port, l->address, l->port, l->tls ? "https" : "http", name, l->port);
    if (strpbrk(l->address, "'\\") || strpbrk(l->port, "'\\"))
        return 0;
    buf_init(&out, 64);
    run_and_read(command, &out);
    status = out.data ? atoi(out.data) : 0;
    buf_done(&out);
    return status;
}

static void tell_no_health(const struct patient *p, const struct listener *l, int status,
                           struct diagnosis *d)
{
    if (status == 0) {
        found(d, FOUND_BROKEN, "nothing answers at %s:%s, where nginx should listen", l->address,
              l->port);
        fix(d, "start nginx (%s); its configuration is valid",
            cli_is_installed() ? "systemctl start nginx" : "./quickstart up");
        return;
    }
    found(d, FOUND_BROKEN, "/health at %s:%s%s has status %d", l->address, l->port,
          l->tls ? " (TLS)" : "", status);
    fix(d, "nginx's error log says why it does not reach %.80s/fcgi.sock", p->config.run_dir);
}

static void look_nginx(const struct patient *p, struct diagnosis *d)
{
    struct site site;
    char name[256];

    if (!read_site(p, &site, d))
        return;
    if (site.count == 0) {
        found(d, FOUND_BROKEN, "nginx's site for this instance listens nowhere");
        fix(d, "add a listen line to its server block");
        return;
    }
    plain_name(&site, name, sizeof(name));
    for (size_t i = 0; i < site.count; i++) {
        const struct listener *l = &site.listeners[i];
        int status = ask(l, name);

        if (status == 200)
            continue;
        tell_no_health(p, l, status, d);
        return;
    }
    found(d, FOUND_OK, "/health answers through all %zu listeners", site.count);
}

/* ------------------------------------------------------------------ the certificate */

/* Finds a name of the site that the certificate does not cover. Patterns are not looked at; sandboxes have names below each plain one. */
static bool find_uncovered(X509 *cert, const struct site *s, char *ret, size_t size)
{
    char names[512], *rest = names, *name;

    text_copy(names, sizeof(names), s->names);
    while ((name = strsep(&rest, " "))) {
        char below[300];

        name += strncmp(name, "*.", 2) == 0 ? 2 : 0;
        if (!*name || strchr("~\"_'", *name))
            continue;
        snprintf(below, sizeof(below), "x.%s", name);
        if (X509_check_host(cert, below, 0, 0, NULL) != 1)
            snprintf(ret, size, "*.%s", name);
        else if (X509_check_host(cert, name, 0, 0, NULL) != 1)
            text_copy(ret, size, name);
        else
            continue;
        return true;
    }
    return false;
}

static void judge_certificate(X509 *cert, const struct site *s, struct diagnosis *d)
{
    time_t soon = time(NULL) + CERT_DAYS * 86400;
    char name[300];

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
        found(d, FOUND_BROKEN, "%.180s has expired", s->certificate);
        fix(d, "renew it and reload nginx");
    } else if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
        found(d, FOUND_BROKEN, "%.180s is not valid yet: is the clock right?", s->certificate);
        fix(d, "timedatectl shows the clock");
    } else if (X509_cmp_time(X509_get0_notAfter(cert), &soon) < 0) {
        found(d, FOUND_WARNING, "%.180s expires within %d days", s->certificate, CERT_DAYS);
        fix(d, "renew it and reload nginx");
    } else if (find_uncovered(cert, s, name, sizeof(name))) {
        found(d, FOUND_WARNING, "%.120s does not cover %.100s", s->certificate, name);
        fix(d, "get a certificate for the site's name and for all names below it");
    } else {
        found(d, FOUND_OK, "%.180s covers its names", s->certificate);
    }
}

static void look_certificate(const struct patient *p, struct diagnosis *d)
{
    struct site site;
    X509 *cert;
    FILE *f;

    if (!read_site(p, &site, d)) {
        *d = (struct diagnosis){ 0 };
        found(d, FOUND_WARNING, "nginx has no certificate for this instance (see the check nginx)");
        return;
    }
    if (!site.certificate[0]) {
        found(d, FOUND_WARNING, "the site has no TLS");
        fix(d, "add a listener with ssl and a certificate");
        return;
    }
    f = fopen(site.certificate, "re");
    cert = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
    if (f)
        fclose(f);
    if (cert) {
        judge_certificate(cert, &site, d);
    } else {
        found(d, FOUND_BROKEN, "%.200s cannot be read", site.certificate);
        fix(d, "put the certificate there, in PEM");
    }
    X509_free(cert);
}

const struct doctor_check front_checks[] = {
    { "nginx", look_nginx },
    { "certificate", look_certificate },
    { NULL },
};
