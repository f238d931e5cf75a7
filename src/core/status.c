/* The server's capacity and use, for its operator: cay-privd is asked for its capacity; without an
 * answer of it the rest is told. */

#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/life.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/template.h"

#include <string.h>

struct status_wait {
    struct core *core;
    void (*done)(void *arg, const struct core_status *s);
    void *arg;
    struct deferred later;
};

static void take_pool(const struct core *c, const struct privsep_pool *from, struct core_status *s)
{
    for (size_t i = 0; i < PRIVSEP_POOL_ROWS && from[i].template_number; i++) {
        struct core_pool *to = &s->pool[s->n_pool++];

        *to = (struct core_pool){.template = templates_name(c, from[i].template_number),
                                 .ready = from[i].ready,
                                 .target = from[i].target,
                                 .claims = from[i].claims,
                                 .misses = from[i].misses,
                                 .refills = from[i].refills};
    }
}

/* Of all tenants: `cay down` tells what it ends, and what stays. */
static void count_paused(const struct core *c, struct core_status *s)
{
    for (size_t i = 0; i < c->registry.n; i++) {
        enum sandbox_state state = c->registry.order[i]->s.state;

        if (life_of(state)->wakes && !life_of(state)->change)
            *(life_of(state)->files ? &s->kept : &s->frozen) += 1;
    }
}

static void answer_status(struct status_wait *w, const struct privsep_msg *m)
{
    const struct core *c = w->core;
    struct core_status s = {.privd_up = c->privd_up,
                            .ready = c->ready,
                            .sandboxes = c->registry.n,
                            .started_real_ms = c->started_real_ms};

    count_paused(c, &s);
    if (m) {
        s.slots_max = m->u.capacity.slots_max;
        s.slots_ready = m->u.capacity.slots_ready;
        s.disk_total_bytes = m->u.capacity.disk_total_bytes;
        s.disk_free_bytes = m->u.capacity.disk_free_bytes;
        memcpy(s.disk_backend, m->u.capacity.disk_backend, sizeof(s.disk_backend) - 1);
        take_pool(c, m->u.capacity.pool, &s);
    }
    w->done(w->arg, &s);
    free(w);
}

static void on_capacity(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg)
{
    answer_status(arg, status == 0 ? m : NULL);
}

static void answer_status_deferred(void *arg)
{
    answer_status(arg, NULL);
}

void core_status(struct core *c, void (*done)(void *arg, const struct core_status *s), void *arg)
{
    struct privsep_msg m = {.op = PRIVSEP_CAPACITY};
    struct status_wait *w = RESERVE_NEW(&c->reserve, struct status_wait);

    *w = (struct status_wait){c, done, arg};
    if (call_privd(c, "", &m, on_capacity, w) < 0)
        core_defer(c, &w->later, answer_status_deferred, w);
}
