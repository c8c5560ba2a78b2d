/* cove mcp: an MCP server on standard input and output, for desktop clients. It passes messages to a cove server. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/mcp_http.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { LINE_MAX_BYTES = 64 * 1024 * 1024, READ_BYTES = 64 * 1024, LAST_ANSWERS_MS = 60000 };

/* Each message is a line. Messages of a cove server have no line feed in them. */
static void output(const char *text, size_t len)
{
    fwrite(text, 1, len, stdout);
    fputc('\n', stdout);
    fflush(stdout);
}

/* Hands on all whole lines. */
static void send_lines(struct mcp_server *s, struct buf *in)
{
    char *at = in->data, *end = at + in->len, *feed;

    while ((feed = memchr(at, '\n', (size_t)(end - at)))) {
        size_t len = (size_t)(feed - at);

        len -= len > 0 && at[len - 1] == '\r';
        if (len > 0)
            mcp_server_send(s, at, len);
        at = feed + 1;
    }
    buf_drop(in, (size_t)(at - in->data));
}

/* 0 at the end of the input. */
static int read_input(struct mcp_server *s, struct buf *in, struct cove_err *e)
{
    char *room = buf_reserve(in, READ_BYTES);
    ssize_t n;

    if (!room)
        return cove_fail(e, COVE_TOO_LARGE, "a message is larger than 64 MiB");
    n = read(STDIN_FILENO, room, READ_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n <= 0)
        return 0;
    in->len += (size_t)n;
    in->data[in->len] = '\0';
    send_lines(s, in);
    return 1;
}

static bool has_input(void)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

    return poll(&p, 1, 0) > 0;
}

/* Serves until the client closes our input: that is how clients end a server. Requests that came before are
 * still answered, if that does not take too long. */
static int serve(struct mcp_server *s, struct cove_err *e)
{
    AUTO_BUF struct buf in = BUF(LINE_MAX_BYTES);
    uint64_t until_ms;
    int rc = 1;

    while (rc > 0) {
        mcp_server_wait(s, STDIN_FILENO);
        if (has_input())
            rc = read_input(s, &in, e);
    }
    until_ms = clock_boot_ms() + LAST_ANSWERS_MS;
    while (rc == 0 && mcp_server_owes(s) && clock_boot_ms() < until_ms)
        mcp_server_wait(s, -1);
    return rc;
}

static const char *address(const char *url, const char *sandbox)
{
    char *text = NULL;
    char *name = sandbox ? curl_easy_escape(NULL, sandbox, 0) : NULL;
    size_t len = strlen(url);

    while (len > 0 && url[len - 1] == '/')
        len--;
    if (asprintf(&text, "%.*s/mcp%s%s", (int)len, url, name ? "/" : "", name ? name : "") < 0)
        abort();
    curl_free(name);
    return text;
}

int cli_mcp(int argc, char **argv)
{
    static const struct option longs[] = {
        { "url", required_argument, NULL, 'u' },
        { "sandbox", required_argument, NULL, 's' },
        { "cacert", required_argument, NULL, 'c' },
        { 0 },
    };
    struct mcp_server s = { .key = getenv("COVE_KEY"), .output = output };
    const char *url = getenv("COVE_URL"), *sandbox = getenv("COVE_SANDBOX");
    struct cove_err e;
    int c, rc;

    optind = 1;
    while ((c = getopt_long(argc, argv, "u:s:c:", longs, NULL)) != -1) {
        if (c != 'u' && c != 's' && c != 'c')
            return CLI_ERROR;
        *(c == 'u' ? &url : c == 's' ? &sandbox : &s.ca) = optarg;
    }
    if (optind < argc)
        return cli_usage("cove mcp [--url URL] [--sandbox NAME] [--cacert FILE]");
    if (!url || !*url || !s.key || !*s.key) {
        cove_fail(&e, COVE_INVALID,
                  "set COVE_URL to the server's address and COVE_KEY to a key of it");
        return cli_fail(&e);
    }
    AUTO_FREE char *whole = (char *)address(url, sandbox && *sandbox ? sandbox : NULL);

    s.url = whole;
    if (mcp_server_init(&s, &e) < 0)
        return cli_fail(&e);
    rc = serve(&s, &e);
    mcp_server_done(&s);
    return rc < 0 ? cli_fail(&e) : CLI_OK;
}
