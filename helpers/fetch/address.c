/* Decides where a fetch may connect to, by the address of the connection and never by a name, so that no later
 * answer of a name server can differ from what was checked. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "cove/mem.h"
#include "cove/netlist.h"
#include "helpers/fetch/fetch_private.h"

static const uint8_t *bytes_of(const struct sockaddr *to, size_t *ret_len)
{
    if (to->sa_family == AF_INET) {
        *ret_len = 4;
        return (const uint8_t *)&((const struct sockaddr_in *)to)->sin_addr;
    }
    *ret_len = 16;
    return (const uint8_t *)&((const struct sockaddr_in6 *)to)->sin6_addr;
}

/*
 * A connection to an address of this machine has that very address as its source too. A connected UDP socket
 * tells the source, and sends nothing. Such addresses are refused because services that a firewall hides from the
 * outside are not for fetches either.
 */
bool address_is_own(const struct sockaddr *to)
{
    socklen_t size =
        to->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    AUTO_CLOSE int probe = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage from = { 0 };
    const uint8_t *ours, *theirs;
    size_t len;

    if (probe < 0 || connect(probe, to, size) < 0)
        return false; /* no route leads there */
    if (getsockname(probe, (struct sockaddr *)&from, &(socklen_t){ sizeof(from) }) < 0 ||
        from.ss_family != to->sa_family)
        return true; /* not known: to be safe, refuse */
    ours = bytes_of((struct sockaddr *)&from, &len);
    theirs = bytes_of(to, &len);
    return memcmp(ours, theirs, len) == 0;
}

bool address_may_be_reached(const char *allow, const struct sockaddr *to)
{
    const uint8_t *bytes;
    size_t len;

    if (to->sa_family != AF_INET && to->sa_family != AF_INET6)
        return false;
    bytes = bytes_of(to, &len);
    if (net_list_has_addr(allow, to->sa_family, bytes))
        return true;
    return !net_is_never(to->sa_family, bytes) && !address_is_own(to);
}
