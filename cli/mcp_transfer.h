/* One request of `cove mcp` to the server. */
#ifndef CLI_MCP_TRANSFER_H
#define CLI_MCP_TRANSFER_H

#include "cli/mcp_http.h"

struct json_object;

enum { CONNECT_MS = 10000 };

struct mcp_transfer {
    struct mcp_server *server;
    struct mcp_transfer *next;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    size_t body_len;
    char *id;     /* of the request, as JSON; NULL: it is a notification, or the session's stream */
    char *method; /* NULL: several messages, or none */
    bool is_stream, in_session, starts_session, retried, answered;
    bool cancelled; /* the client does not want an answer any more */
    bool events;    /* the reply is a stream of events */
    char event[96]; /* the id of the event that is being read */
    char heard[96]; /* the id of the last whole event; "" = none */
    unsigned resumes;
    uint64_t due_ms; /* not to be begun before; 0 = it has begun */
    struct buf in;
};

/* A transfer that has not begun; with `text` it is a POST. */
struct mcp_transfer *transfer_new(struct mcp_server *s, const char *text, size_t len);
void transfer_free(struct mcp_transfer *t);
/* A header without a value is left out. */
void transfer_add_header(struct mcp_transfer *t, const char *name, const char *value);
/* Gives libcurl all that it needs; for transfers that the caller performs itself. */
void transfer_set_up(struct mcp_transfer *t);
/* From here on the transfer is one of the server's. */
void transfer_start(struct mcp_transfer *t);
void transfer_start_at(struct mcp_transfer *t, uint64_t due_ms);
/* Begins those whose time has come. */
void transfers_start_due(struct mcp_server *s);
/* Ends and frees a transfer that was started. */
void transfer_stop(struct mcp_transfer *t);

/* Gives the client a message of the server's. */
void transfer_hand_on(struct mcp_transfer *t, const char *text, size_t len);
bool transfer_is_answer(const struct mcp_transfer *t, const char *text, size_t len);
/* Answers the client's request with an error; a notification's failure goes to stderr. */
void transfer_fail(struct mcp_transfer *t, const char *what);

/* A member of an object, if it is there and a string (an object); otherwise NULL. */
const char *mcp_text_member(struct json_object *of, const char *name);
struct json_object *mcp_member(struct json_object *of, const char *name);

#endif
