#include "checkpoint/connections.h"

#include "base/util.h"
#include "checkpoint/diag.h"

#include <netinet/tcp.h>

#define CLOSED_HERE  (1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSING)
#define CLOSED_THERE (1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK)

bool connections_is_half_closed(const struct inet_diag_msg *m)
{
    if (m->idiag_inode == 0 || m->idiag_state > TCP_CLOSING)
        return false;
    return (1u << m->idiag_state & CLOSED_HERE) ||
           ((1u << m->idiag_state & CLOSED_THERE) && m->idiag_rqueue > 1);
}

bool connections_is_begun(const struct inet_diag_msg *m)
{
    return m->idiag_inode != 0 && m->idiag_state == TCP_SYN_SENT;
}

static bool is_half_closed(const void *arg UNUSED, const void *answer, size_t len)
{
    return len >= sizeof(struct inet_diag_msg) && connections_is_half_closed(answer);
}

static bool is_begun(const void *arg UNUSED, const void *answer, size_t len)
{
    return len >= sizeof(struct inet_diag_msg) && connections_is_begun(answer);
}

int connections_find_half_closed(bool *found)
{
    return diag_find_tcp(CLOSED_HERE | CLOSED_THERE, 0, is_half_closed, found);
}

int connections_find_begun(bool *found)
{
    return diag_find_tcp(1u << TCP_SYN_SENT, 0, is_begun, found);
}
