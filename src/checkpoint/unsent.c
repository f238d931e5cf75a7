#include "checkpoint/unsent.h"

#include "base/util.h"
#include "checkpoint/diag.h"

#include <linux/tcp.h> /* netinet/tcp.h has a shorter tcp_info */
#include <string.h>

/* By the kernel's number, which netinet/tcp.h names. A connection that one side has ended comes
 * back as a socket without one, whatever is on it. */
#define ESTABLISHED 1

static bool read_one(void *arg, const struct rtattr *a)
{
    struct tcp_info info = {0};
    bool *found = arg;

    if (a->rta_type != INET_DIAG_INFO)
        return true;
    memcpy(&info, RTA_DATA(a), MIN(RTA_PAYLOAD(a), sizeof(info)));
    *found = info.tcpi_notsent_bytes > 0;
    return !*found;
}

bool unsent_is_on(const struct inet_diag_msg *m, size_t len)
{
    bool found = false;

    if (len < sizeof(*m) || m->idiag_inode == 0)
        return false;
    diag_each_attribute(m, len, sizeof(*m), read_one, &found);
    return found;
}

static bool is_one(const void *arg UNUSED, const void *answer, size_t len)
{
    return unsent_is_on(answer, len);
}

int unsent_find(bool *found)
{
    return diag_find_tcp(1u << ESTABLISHED, 1u << (INET_DIAG_INFO - 1), is_one, found);
}
