/* privd's list of kept files (KEPTS): the numbers, whether each is whole, and its owner. Names no
 * sandbox and no snapshot. */

#include "core/call.h"
#include "core/core_internal.h"
#include "core/keep.h"

#include <errno.h>
#include <string.h>

void keep_owner(const char *id, uint8_t out[static PRIVSEP_OWNER_SIZE])
{
    memset(out, 0, PRIVSEP_OWNER_SIZE);
    memcpy(out, id, strnlen(id, PRIVSEP_OWNER_SIZE));
}

enum kept_seen keep_seen(const struct core *c, uint32_t number, const char *id)
{
    static const uint8_t unknown[PRIVSEP_OWNER_SIZE];
    const struct kept_listed *t = &c->kepts.listed[number];
    uint8_t owner[PRIVSEP_OWNER_SIZE];

    keep_owner(id, owner);
    if (memcmp(t->owner, owner, sizeof(owner)) != 0 &&
        memcmp(t->owner, unknown, sizeof(unknown)) != 0)
        return KEPT_SEEN_NONE;
    return t->seen;
}

bool keep_is_gone(int status)
{
    return status == 0 || status == -ENOENT || status == -EPERM;
}

static void on_kepts(struct core *c, const char *id, int status, const struct privsep_msg *m,
                     int *fds, size_t n_fds, void *arg)
{
    void (*fn)(struct core *, int) = arg;
    struct kepts *k = &c->kepts;

    if (status == 0)
        memcpy(k->listed, k->coming, sizeof(k->listed));
    memset(k->coming, 0, sizeof(k->coming));
    fn(c, status);
}

int keep_send_kepts(struct core *c, void (*fn)(struct core *c, int status))
{
    struct privsep_msg m = {.op = PRIVSEP_KEPTS};
    int64_t rc;

    rc = call_privd(c, "", &m, on_kepts, fn);
    return rc < 0 ? (int)rc : 0;
}

void keep_on_kept_event(struct core *c, const struct privsep_msg *m)
{
    uint32_t n = m->u.kept.number;
    struct kept_listed *t = &c->kepts.coming[n <= PRIVSEP_KEPT_MAX ? n : 0];

    if (n < 1 || n > PRIVSEP_KEPT_MAX)
        return;
    t->seen = m->u.kept.busy ? KEPT_SEEN_BUSY : KEPT_SEEN_WHOLE;
    t->without_memory = m->u.kept.without_memory != 0;
    memcpy(t->owner, m->u.kept.owner, sizeof(t->owner));
}
