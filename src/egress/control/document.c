/* A document is waiting (its text is still its exchange's), running (the helper thread reads a copy
 * of the text), or dropped (its client has gone: waiting, at once; running, when the thread is
 * done). Whose turn it is: each has a round, one more than the last that its tenant has here, and
 * the lowest is first. So a tenant with many waits behind another's first. */
#include "egress/control/document.h"

#include "base/share.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/sandbox.h"
#include "http/json.h"
#include "http/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define TENANT_SIZE (EGRESS_TENANT_MAX + 1)

struct document {
    uv_work_t work;
    struct document *next; /* that waits behind it */
    struct documents *all;
    const struct document_kind *kind;
    struct http_exchange *x; /* NULL: gone */
    void *context;           /* x's own, which it has again when the document was read */
    struct share *share;
    char tenant[TENANT_SIZE];
    unsigned slot;
    uint64_t round;
    char *text; /* x's; a copy, while it is read */
    size_t len;
    json_t *json;
    void *read;
    struct err e;
};

struct documents {
    struct egress *egress;
    struct share_pool *shares;
    struct document *waiting, *running;
    uint64_t round;   /* of the one that was begun last */
    uv_sem_t is_read; /* by the thread */
};

int documents_new(struct egress *eg, struct documents **out)
{
    struct documents *all = calloc(1, sizeof(*all));

    if (all)
        all->shares = share_pool_new(DOCUMENTS_MAX);
    if (!all || !all->shares || uv_sem_init(&all->is_read, 0) < 0) {
        free(all);
        return -ENOMEM;
    }
    all->egress = eg;
    *out = all;
    return 0;
}

void documents_stop(struct documents *all)
{
    if (all && all->running)
        uv_sem_wait(&all->is_read);
}

/* -- reading ----------------------------------------------------------------------------------- */

static void read_text(struct document *d)
{
    if (json_parse(d->text, d->len, false, &d->json, &d->e) == ERR_OK)
        (void)d->kind->read(d->all->egress, d->json, &d->read, &d->e);
}

/* On the helper thread. */
static void do_read(uv_work_t *work)
{
    struct document *d = work->data;

    read_text(d);
    uv_sem_post(&d->all->is_read);
}

static void document_free(struct document *d)
{
    json_decref(d->json);
    d->kind->drop(d->read);
    share_return(d->share);
    free(d);
}

static void take(struct document *d)
{
    http_exchange_set(d->x, d->context, NULL);
    d->kind->take(d->x, d->json, TAKE_PTR(d->read), d->e.code == ERR_OK ? NULL : &d->e);
}

/* -- whose turn it is -------------------------------------------------------------------------- */

static void run_next(struct documents *all);

static void on_read(uv_work_t *work, int status)
{
    struct document *d = work->data;
    struct documents *all = d->all;

    uv_sem_wait(&all->is_read); /* it was posted: the count is 0 again */
    all->running = NULL;
    free(d->text);
    if (d->x)
        take(d);
    document_free(d);
    run_next(all);
}

static void unlink_waiting(struct document *d)
{
    struct document **at = &d->all->waiting;

    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
}

static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct document *d = data;

    d->x = NULL;
    if (d->all->running == d)
        return;
    unlink_waiting(d);
    document_free(d);
}

/* The lowest round's; of those the first that came. */
static struct document *next_of(const struct documents *all)
{
    struct document *best = all->waiting;

    for (struct document *d = best; d; d = d->next)
        if (d->round < best->round)
            best = d;
    return best;
}

static bool begin(struct document *d)
{
    char *copy = malloc(d->len + 1); /* its exchange may end before the thread */

    if (!copy)
        return false;
    memcpy(copy, d->text, d->len);
    d->text = copy;
    return uv_queue_work(d->all->egress->loop, &d->work, do_read, on_read) == 0;
}

static void run_next(struct documents *all)
{
    struct document *d;

    while (!all->running && (d = next_of(all))) {
        unlink_waiting(d);
        all->round = d->round;
        all->running = d;
        if (begin(d))
            return;
        all->running = NULL;
        http_exchange_set(d->x, NULL, NULL);
        http_respond_error(d->x, 503, "out of memory");
        document_free(d);
    }
}

static uint64_t round_of(const struct documents *all, const char *tenant)
{
    uint64_t round = all->round;

    if (all->running && strcmp(all->running->tenant, tenant) == 0)
        round = all->running->round + 1;
    for (const struct document *d = all->waiting; d; d = d->next)
        if (strcmp(d->tenant, tenant) == 0)
            round = MAX(round, d->round + 1);
    return round;
}

static void wait_for_turn(struct document *d)
{
    struct document **at = &d->all->waiting;

    d->round = round_of(d->all, d->tenant);
    d->work.data = d;
    while (*at)
        at = &(*at)->next;
    *at = d;
    http_exchange_set(d->x, d, on_exchange_end);
    run_next(d->all);
}

/* -- start ------------------------------------------------------------------------------------- */

/* An earlier policy of the same sandbox: a later one does not overtake it. */
static bool is_read_already(const struct documents *all, unsigned slot)
{
    if (all->running && all->running->kind->ordered && all->running->slot == slot)
        return true;
    for (const struct document *d = all->waiting; d; d = d->next)
        if (d->kind->ordered && d->slot == slot)
            return true;
    return false;
}

static struct share *take_share(struct documents *all, const char *tenant)
{
    return share_held(all->shares, tenant, NULL) < DOCUMENTS_EACH
               ? share_take(all->shares, tenant, NULL)
               : NULL;
}

static void start_long(struct document *d)
{
    struct document *kept;

    if (!d->kind->ordered && !(d->share = take_share(d->all, d->tenant))) {
        http_respond_error(d->x, 429,
                           "%u long questions about policies are answered already: wait for them",
                           DOCUMENTS_EACH);
        return;
    }
    kept = malloc(sizeof(*kept));
    if (!kept) {
        share_return(d->share);
        http_respond_error(d->x, 503, "out of memory");
        return;
    }
    *kept = *d;
    wait_for_turn(kept);
}

void document_start(struct documents *all, struct http_exchange *x,
                    const struct document_kind *kind, unsigned slot, const char *tenant, char *body,
                    size_t len)
{
    struct document d = {.all = all,
                         .kind = kind,
                         .x = x,
                         .context = http_exchange_get(x),
                         .slot = slot,
                         .text = body,
                         .len = len};

    (void)snprintf(d.tenant, sizeof(d.tenant), "%s", tenant);
    if (len > DOCUMENT_SHORT_BYTES || (kind->ordered && is_read_already(all, slot))) {
        start_long(&d);
        return;
    }
    read_text(&d);
    take(&d);
    json_decref(d.json);
}
