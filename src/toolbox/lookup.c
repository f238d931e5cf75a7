/* Questions to the control loop: which sandbox a request reaches, whether its key or signature
 * is right, and a socket to its agent. Called by toolbox.c for each request and by agent.c for
 * each further connection. A question waits in a table of fixed size; its ticket (index and
 * count of the entry's uses) goes along, so that an answer that comes late finds its entry used
 * by another and is dropped. done is called once: by the answer, or with NULL by the sweep when
 * the time is over or the mailbox was full. */

#include "toolbox/lookup.h"

#include "base/clock.h"
#include "gateway/idle_connections.h"
#include "gateway/resolve.h"
#include "http/server.h"
#include "toolbox/call.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SWEEP_MS 500

struct entry {
    toolbox_lookup_cb done; /* NULL: free */
    void *arg;
    uint32_t use;       /* counts each use of the place, never 0 */
    uint32_t next_free; /* index + 1; 0 ends the list */
    uint64_t due_ms;
    bool refused; /* in the next turn */
};

struct toolbox_lookups {
    struct entry *entries;
    size_t max, count;
    uint32_t free_list;
};

int toolbox_lookups_new(size_t max, struct toolbox_lookups **out)
{
    struct toolbox_lookups *a = calloc(1, sizeof(*a));

    if (a)
        a->entries = calloc(max, sizeof(*a->entries));
    if (!a || !a->entries) {
        free(a);
        return -ENOMEM;
    }
    a->max = max;
    for (size_t i = max; i > 0; i--) {
        a->entries[i - 1].next_free = a->free_list;
        a->free_list = (uint32_t)i;
    }
    *out = a;
    return 0;
}

void toolbox_lookups_free(struct toolbox_lookups *a)
{
    if (a)
        free(a->entries);
    free(a);
}

/* The place is free before done is called, which may ask again. */
static void answer(struct toolbox_lookups *a, struct entry *l, struct gateway_answer *given)
{
    toolbox_lookup_cb done = l->done;
    void *arg = l->arg;

    l->done = NULL;
    l->next_free = a->free_list;
    a->free_list = (uint32_t)(l - a->entries) + 1;
    a->count--;
    done(arg, given);
}

void toolbox_answered(struct toolbox *t, uint64_t ticket, struct gateway_answer *a)
{
    uint32_t i = (uint32_t)ticket;
    struct entry *l = i < t->lookups->max ? &t->lookups->entries[i] : NULL;

    if (l && l->done && l->use == ticket >> 32)
        answer(t->lookups, l, a);
    util_close(&a->fd);
}

void toolbox_lookups_sweep(struct toolbox *t, uint64_t now_ms)
{
    for (size_t i = 0; i < t->lookups->max && t->lookups->count > 0; i++)
        if (t->lookups->entries[i].done && t->lookups->entries[i].due_ms <= now_ms)
            answer(t->lookups, &t->lookups->entries[i], NULL);
}

void toolbox_need_sweep(struct toolbox *t)
{
    if (!uv_is_active((uv_handle_t *)&t->sweep))
        uv_timer_start(&t->sweep, t->on_sweep, SWEEP_MS, SWEEP_MS);
}

size_t toolbox_lookups_count(const struct toolbox_lookups *lookups)
{
    return lookups->count;
}

/* Adds what opens the sandbox: a key, or the signature of a URL, whose sandbox is named by its id
 * alone. False: memory is out. */
static bool put_access(const struct toolbox_call *c, struct gateway_query *q)
{
    if (!c->is_signed) {
        q->access.key = strdup(c->key);
        return q->access.key != NULL;
    }
    q->kind = ROUTE_FILE_URL;
    if (strlen(q->name) < sizeof(q->id))
        memcpy(q->id, q->name, strlen(q->name) + 1);
    q->access = c->file_url;
    if (c->file_url.subject)
        q->access.subject = strdup(c->file_url.subject);
    return !c->file_url.subject || q->access.subject;
}

static int send_query(struct toolbox_call *c, uint64_t ticket)
{
    struct gateway_query q = {.kind = ROUTE_KEYED, .port = AGENT_PORT};
    int rc = -EAGAIN;

    snprintf(q.name, sizeof(q.name), "%s", c->id[0] ? c->id : c->name);
    q.idle_gen = idle_connections_generation(&c->toolbox->idle, q.name);
    if (put_access(c, &q))
        rc = c->toolbox->config.query(c->toolbox->config.ctx, ticket, &q);
    if (rc < 0)
        access_free(&q.access);
    return rc;
}

static int send_follow(struct toolbox_call *c, uint64_t ticket)
{
    const struct toolbox_config *config = &c->toolbox->config;

    return config->follow(config->ctx, ticket, http_exchange_head(c->x)->host, c->key);
}

/* A lookup that cannot be sent is answered by the sweep, which is due at once. */
static void begin(struct toolbox_call *c, int (*send)(struct toolbox_call *c, uint64_t ticket),
                  toolbox_lookup_cb done, void *arg)
{
    struct toolbox_lookups *a = c->toolbox->lookups;
    struct entry *l;

    if (!a->free_list) {
        done(arg, NULL);
        return;
    }
    l = &a->entries[a->free_list - 1];
    a->free_list = l->next_free;
    a->count++;
    l->done = done;
    l->arg = arg;
    l->use = l->use == UINT32_MAX ? 1 : l->use + 1;
    l->due_ms = clock_mono_ms() + c->toolbox->config.lookup_timeout_ms;
    if (send(c, (uint64_t)l->use << 32 | (uint32_t)(l - a->entries)) < 0)
        l->due_ms = 0;
    toolbox_need_sweep(c->toolbox);
}

void toolbox_lookup(struct toolbox_call *c, toolbox_lookup_cb done, void *arg)
{
    begin(c, send_query, done, arg);
}

void toolbox_follow(struct toolbox_call *c, toolbox_lookup_cb done, void *arg)
{
    begin(c, send_follow, done, arg);
}
