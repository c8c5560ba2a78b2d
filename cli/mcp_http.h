/* Messages to a cove server over HTTP, many at a time, for `cove mcp`. */
#ifndef CLI_MCP_HTTP_H
#define CLI_MCP_HTTP_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"

struct mcp_transfer;

struct mcp_server {
    const char *url, *key;
    const char *ca; /* file with the certificate authorities to trust; NULL = the system's */
    CURLM *multi;
    struct mcp_transfer *transfers;
    unsigned count;
    char session[160];     /* Mcp-Session-Id; "" = none */
    struct buf initialize; /* the client's own, to begin a new session when the old one is over */
    bool initialized;      /* the client has sent `initialized`: the session's stream is wanted */
    bool listening;        /* the session's stream is open */
    uint64_t listen_at_ms; /* the stream is not opened before this time */
    char heard[96];        /* the id of the last event of that stream; "" = none */
    void (*output)(const char *text, size_t len); /* one message of the server's */
};

int mcp_server_init(struct mcp_server *s, struct cove_err *e);
void mcp_server_done(struct mcp_server *s);

/* Sends one message of the client's. What comes back goes to output(). */
void mcp_server_send(struct mcp_server *s, const char *text, size_t len);
/* Does the client wait for an answer? */
bool mcp_server_owes(const struct mcp_server *s);
/* Waits for the server, for `fd` to have something to read, or for a while. */
void mcp_server_wait(struct mcp_server *s, int fd);

#endif
