#include "checkpoint/agent_socket.h"

#include "base/util.h"
#include "checkpoint/diag.h"
#include "contract/agent_go_on.h"

#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

static const char name[] = "\0" AGENT_GO_ON_NAME;
#define NAME_BYTES (sizeof(name) - 1) /* as bound: without a NUL at its end */

struct seen {
    bool named, waited;
};

static bool read_one(void *arg, const struct rtattr *a)
{
    const struct unix_diag_rqlen *queue = RTA_DATA(a);
    struct seen *s = arg;

    if (a->rta_type == UNIX_DIAG_NAME)
        s->named = RTA_PAYLOAD(a) == NAME_BYTES && memcmp(RTA_DATA(a), name, NAME_BYTES) == 0;
    if (a->rta_type == UNIX_DIAG_RQLEN && RTA_PAYLOAD(a) >= sizeof(*queue))
        s->waited = queue->udiag_rqueue > 0;
    return true;
}

bool agent_socket_is_awaited(const void *answer, size_t len)
{
    const struct unix_diag_msg *m = answer;
    struct seen s = {false, false};

    if (len < sizeof(*m) || m->udiag_type != SOCK_SEQPACKET || m->udiag_state != TCP_LISTEN)
        return false;
    diag_each_attribute(answer, len, sizeof(*m), read_one, &s);
    return s.named && s.waited;
}

static bool is_found(const void *arg UNUSED, const void *answer, size_t len)
{
    return agent_socket_is_awaited(answer, len);
}

int agent_socket_find_waiting(bool *found)
{
    return diag_find_unix(1u << TCP_LISTEN, UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN, is_found, NULL,
                          found);
}
