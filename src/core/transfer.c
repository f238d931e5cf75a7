/* The queue of exports and imports. Each is known by its number alone to what waits for an answer:
 * it may be gone by then. */

#include "core/transfer_internal.h"

#include "base/util.h"
#include "core/call.h"
#include "core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct transfer *transfer_get(struct core *c, uint64_t number)
{
    struct transfer *x = c->transfers;

    while (x && x->number != number)
        x = x->next;
    return x;
}

struct transfer *transfer_new(struct core *c, const char *tenant, const struct transfer_kind *kind,
                              struct err *e)
{
    struct transfer **end = &c->transfers, *x;
    unsigned n = 0;

    for (; *end; end = &(*end)->next) {
        if ((*end)->kind != kind)
            continue;
        n++;
        if (strcmp((*end)->tenant, tenant) != 0)
            continue;
        err_set(e, ERR_EXHAUSTED, "an %s of this tenant's is under way: one at a time", kind->name);
        err_hint(e, "%s", kind->hint);
        return NULL;
    }
    if (n >= kind->most) {
        err_set(e, ERR_UNAVAILABLE, "%u %ss are under way, as many as there may be; try again", n,
                kind->name);
        return NULL;
    }
    x = calloc(1, sizeof(*x));
    if (!x) {
        err_set(e, ERR_UNAVAILABLE, "memory is out");
        return NULL;
    }
    x->core = c;
    x->kind = kind;
    x->number = ++c->transfer_last;
    x->held_fd = -1;
    (void)snprintf(x->tenant, sizeof(x->tenant), "%s", tenant);
    *end = x;
    return x;
}

void transfer_remove(struct transfer *x)
{
    struct transfer **at = &x->core->transfers;

    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    timers_cancel(&x->core->timers, &x->timer);
    util_close(&x->held_fd);
    free(x);
}

static struct transfer *first_in(struct core *c, enum transfer_state state)
{
    struct transfer *x = c->transfers;

    while (x && x->state != state)
        x = x->next;
    return x;
}

void transfer_next(struct core *c)
{
    struct transfer *x;
    struct err e;

    while (!c->stopping && !first_in(c, TRANSFER_RUNNING) &&
           (x = first_in(c, TRANSFER_WAITING)) != NULL) {
        enum err_code code = x->kind->request(x, &e);

        if (code == ERR_OK)
            x->state = TRANSFER_RUNNING;
        else
            x->kind->fail(x, &e);
    }
}

void transfer_refusal(struct err *e, int status, const struct privsep_msg *m, const char *what)
{
    const char *why = m ? m->u.refused.why : "";
    int n = (int)strnlen(why, PRIVSEP_WHY_SIZE);
    enum err_code code = status == -EOPNOTSUPP || status == -EALREADY || status == -ESTALE
                             ? ERR_CONFLICT
                         : status == -ENOSPC || status == -EDQUOT ? ERR_NO_SPACE
                         : status == -ENOENT                      ? ERR_NOT_FOUND
                         : status == -EBADMSG                     ? ERR_INVALID
                                                                  : ERR_UNAVAILABLE;

    if (!m)
        (void)call_privd_err(e, status, what);
    else
        err_set(e, code, "%s: %.*s", what, n > 0 ? n : (int)strlen(strerror(-status)),
                n > 0 ? why : strerror(-status));
}

void transfers_free(struct core *c, const struct err *why)
{
    while (c->transfers)
        c->transfers->kind->fail(c->transfers, why);
}
