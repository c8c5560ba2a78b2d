/*
 * What a WebSocket's client can send: helpers/gate/websocket.c. The input is the bytes on the socket, in pieces
 * whose sizes its first byte decides; the user of the socket echoes, pauses and pulls. What must hold: no
 * message is larger than allowed, the budget is given back, and nothing is called after gone().
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "helpers/gate/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_MAX = 1000, TURNS = 64 };

static struct budget budget = { .max = 4 * MESSAGE_MAX };
static bool over;
static size_t pulls;

static void message(struct websocket *ws, bool text, const char *bytes, size_t len)
{
    assert(!over && len <= MESSAGE_MAX);
    if (len > 0 && bytes[0] == 'p' && websocket_has_room(ws))
        websocket_send_pulled(ws);
    else if (websocket_has_room(ws))
        websocket_send(ws, text, bytes, len);
    if (len > 0 && bytes[0] == 'c')
        websocket_close(ws, 1000, bytes[len - 1] == 'x' ? "because \xff" : "because");
    websocket_pause(ws, len > 0 && bytes[0] == 's');
    websocket_want_room(ws, len % 2);
}

static void room(struct websocket *ws)
{
    assert(!over);
    websocket_pause(ws, false);
    websocket_want_room(ws, false);
}

static ssize_t pull(struct websocket *ws, char *buf, size_t len, int *ret_last)
{
    (void)ws;
    *ret_last = ++pulls % 3 == 0;
    memset(buf, 'x', len < 100 ? len : 100);
    return len < 100 ? (ssize_t)len : 100;
}

static void gone(struct websocket *ws)
{
    assert(!over);
    over = true;
    websocket_done(ws);
}

static const struct websocket_user user = {
    .message_max = MESSAGE_MAX, .message = message, .room = room, .pull = pull, .gone = gone
};

static void drain(int fd)
{
    char bytes[4096];

    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        continue;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct websocket ws;
    struct loop loop;
    size_t step, at = 1;
    int fds[2];

    if (size < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) < 0)
        return 0;
    over = false;
    pulls = 0;
    step = data[0] ? data[0] : size;
    assert(loop_init(&loop, NULL) == 0);
    assert(websocket_init(&ws, &user, &loop, fds[0], &budget, 60000) == 0);
    while (!over && at < size) {
        size_t n = size - at < step ? size - at : step;

        send(fds[1], data + at, n, MSG_NOSIGNAL);
        at += n;
        for (int i = 0; i < 4 && !over; i++)
            loop_turn(&loop, 0);
        drain(fds[1]);
    }
    shutdown(fds[1], SHUT_WR);
    for (int i = 0; i < TURNS && !over; i++)
        loop_turn(&loop, 1);
    if (!over)
        websocket_done(&ws);
    assert(budget.used == 0);
    close(fds[1]);
    loop_done(&loop);
    return 0;
}
