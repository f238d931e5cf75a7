/* Which webhooks there are: made (their signing secret is sealed by cay-egress first), listed,
 * removed, and what an event means for each of them. How deliveries are sent is in
 * webhook_send.c. */

#include "core/webhook_internal.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/credential.h"
#include "core/deferred.h"
#include "core/events_internal.h"
#include "core/store_webhook.h"
#include "policy/https_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECRET_PREFIX "whsec_" /* Standard Webhooks 1.0 */
#define SECRET_BYTES  24u
#define SECRET_SIZE   48u
#define MESSAGE_SIZE  64u
#define PING_MAX      256u

#define DEFAULT_TYPES                                                                             \
    (1u << EVENT_SANDBOX_CREATED | 1u << EVENT_SANDBOX_ENDED | 1u << EVENT_SANDBOX_PAUSED |       \
     1u << EVENT_SANDBOX_RESUMED | 1u << EVENT_SANDBOX_FORKED | 1u << EVENT_SANDBOX_ROLLED_BACK | \
     1u << EVENT_SNAPSHOT_CREATED | 1u << EVENT_SNAPSHOT_DELETED)

unsigned core_webhook_default_types(void)
{
    return DEFAULT_TYPES;
}

/* Lost events concern a place in a stream, and a webhook has none. */
bool core_webhook_sends(enum event_type type)
{
    return type >= 0 && type < EVENT_TYPE_COUNT && type != EVENT_DROPPED;
}

/* -- those that there are ---------------------------------------------------------------------- */

static struct webhook *find(const struct core *c, const char *tenant, const char *id)
{
    struct webhook *w = c->webhooks->first;

    while (w && (strcmp(w->id, id) != 0 || strcmp(w->tenant->name, tenant) != 0))
        w = w->next;
    return w;
}

static struct webhook *find_or_say(struct core *c, const char *tenant, const char *id,
                                   struct err *e)
{
    struct webhook *w = find(c, tenant, id);

    if (!w) {
        err_set(e, ERR_NOT_FOUND, "there is no webhook \"%.64s\"", id);
        err_hint(e, "`cay webhook ls` shows them");
    }
    return w;
}

/* NULL: memory is out. */
static struct webhook *make(struct core *c, const struct webhook_row *row)
{
    struct webhook *w = calloc(1, sizeof(*w)), **end = &c->webhooks->first;

    if (!w)
        return NULL;
    w->core = c;
    w->due.fire = webhook_on_due;
    w->types = row->types;
    w->made_real_ms = row->made_real_ms;
    w->dead = row->dead;
    (void)snprintf(w->id, sizeof(w->id), "%s", row->id);
    (void)snprintf(w->url, sizeof(w->url), "%s", row->url);
    w->tenant = tenant_get(c, row->tenant);
    w->sealed = strdup(row->sealed);
    if (!w->tenant || !w->sealed) {
        webhook_free(w);
        return NULL;
    }
    while (*end)
        end = &(*end)->next;
    *end = w;
    tenant_charge(w->tenant, TENANT_WEBHOOKS, 1, &w->charge);
    webhook_set_waiting(w, row->waiting);
    return w;
}

static struct core_webhook shown(const struct webhook *w)
{
    return (struct core_webhook){.id = w->id,
                                 .url = w->url,
                                 .types = w->types,
                                 .made_real_ms = w->made_real_ms,
                                 .waiting = w->waiting,
                                 .dead = w->dead,
                                 .delivered = w->delivered,
                                 .dropped = w->dropped,
                                 .last_status = w->last_status,
                                 .last_why = w->last_why};
}

void core_webhook_each(struct core *c, const char *tenant,
                       void (*fn)(void *arg, const struct core_webhook *w), void *arg)
{
    for (const struct webhook *w = c->webhooks->first; w; w = w->next)
        if (strcmp(w->tenant->name, tenant) == 0) {
            const struct core_webhook one = shown(w);

            fn(arg, &one);
        }
}

enum err_code core_webhook_remove(struct core *c, const char *tenant, const char *id, struct err *e)
{
    struct webhook *w = find_or_say(c, tenant, id, e), **p = &c->webhooks->first;

    if (!w || store_webhook_delete(c->store, id, e) != ERR_OK)
        return e->code;
    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    tenant_refund(&w->charge);
    webhook_set_waiting(w, 0);
    log_info("tenant %s: the webhook %s was removed", tenant, id);
    w->removed = true;
    if (!w->current) /* else when its answer is there */
        webhook_free(w);
    return ERR_OK;
}

/* -- made -------------------------------------------------------------------------------------- */

struct adding {
    struct deferred later;
    struct core *core;
    struct tenant *tenant;
    char id[CORE_WEBHOOK_ID_SIZE], url[CORE_WEBHOOK_URL_SIZE], secret[SECRET_SIZE];
    unsigned types;
    core_webhook_cb done;
    void *arg;
    struct err why;
};

static void adding_free(struct adding **a)
{
    tenant_unref((*a)->tenant);
    explicit_bzero((*a)->secret, sizeof((*a)->secret));
    free(*a);
}

static void refuse(void *arg)
{
    CLEANUP(adding_free) struct adding *a = arg;

    a->done(a->arg, NULL, NULL, &a->why);
}

static enum err_code check_count(const struct adding *a, struct err *e)
{
    if (a->tenant->charged[TENANT_WEBHOOKS] < WEBHOOKS_OF_A_TENANT)
        return ERR_OK;
    err_set(e, ERR_EXHAUSTED, "the tenant has %u webhooks, which is the most there can be",
            WEBHOOKS_OF_A_TENANT);
    err_hint(e, "remove one first (`cay webhook rm`)");
    return e->code;
}

static void on_sealed(void *arg, json_t *sealed, const struct err *why)
{
    CLEANUP(adding_free) struct adding *a = arg;
    const json_t *item = json_array_get(sealed, 0);
    struct webhook_row row = {.id = a->id,
                              .tenant = a->tenant->name,
                              .url = a->url,
                              .sealed = json_string_value(json_object_get(item, "sealed")),
                              .types = a->types,
                              .made_real_ms = clock_real_ms()};
    struct webhook *w = NULL;
    struct core_webhook one;
    struct err e;

    if (!why &&
        (check_count(a, &e) != ERR_OK || store_webhook_insert(a->core->store, &row, &e) != ERR_OK))
        why = &e;
    if (!why && !(w = make(a->core, &row))) {
        (void)store_webhook_delete(a->core->store, a->id, &e);
        err_set(&e, ERR_EXHAUSTED, "memory is out");
        why = &e;
    }
    if (why) {
        a->done(a->arg, NULL, NULL, why);
        return;
    }
    log_info("tenant %s: the webhook %s was made", a->tenant->name, a->id);
    one = shown(w);
    a->done(a->arg, &one, a->secret, NULL);
}

static void make_secret(char out[static SECRET_SIZE])
{
    uint8_t bytes[SECRET_BYTES];

    ids_random_bytes(bytes, sizeof(bytes));
    memcpy(out, SECRET_PREFIX, sizeof(SECRET_PREFIX));
    base64_encode(bytes, sizeof(bytes), out + strlen(SECRET_PREFIX));
    explicit_bzero(bytes, sizeof(bytes));
}

static json_t *items_of(const struct adding *a, const struct https_url *url)
{
    return json_pack("[{s:s, s:o, s:s}]", "name", a->id, "bind", webhook_bind(url), "value",
                     a->secret);
}

static enum err_code begin(struct adding *a, const char *url, json_t **items, struct err *e)
{
    struct https_url parsed;

    if (!a->tenant)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (strlen(url) >= sizeof(a->url) || !https_url_parse(url, &parsed))
        return err_set(e, ERR_INVALID,
                       "\"url\" must be https://HOST[:PORT][/PATH] of at most %zu bytes, with a "
                       "name (no address in digits), no user and no fragment",
                       sizeof(a->url) - 1);
    if (check_count(a, e) != ERR_OK)
        return e->code;
    memcpy(a->url, url, strlen(url) + 1);
    a->id[0] = 'w';
    ids_random_text(a->id + 1, sizeof(a->id) - 2);
    make_secret(a->secret);
    *items = items_of(a, &parsed);
    return *items ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

void core_webhook_add(struct core *c, const char *tenant, const char *url, unsigned types,
                      core_webhook_cb done, void *arg)
{
    struct adding *a = RESERVE_NEW(&c->reserve, struct adding);
    json_t *items = NULL;

    a->core = c;
    a->tenant = tenant_get(c, tenant);
    a->types = types;
    a->done = done;
    a->arg = arg;
    if (begin(a, url, &items, &a->why) == ERR_OK)
        core_credentials_seal(c, tenant, items, on_sealed, a);
    else
        core_defer(c, &a->later, refuse, a);
    json_decref(items);
}

/* -- events ------------------------------------------------------------------------------------ */

static bool has_space(const struct webhook *w)
{
    return w->waiting < WEBHOOK_WAITING_EACH &&
           share_leaves_space(WEBHOOK_WAITING_MAX, w->core->tenants.charged[TENANT_DELIVERIES],
                              w->tenant->charged[TENANT_DELIVERIES]);
}

static enum err_code add_delivery(struct webhook *w, const char *type, const char *message,
                                  const char *body, struct err *e)
{
    const struct delivery_row d = {
        .message = message, .type = type, .body = body, .made_ms = clock_real_ms()};

    if (!has_space(w))
        return err_set(e, ERR_EXHAUSTED, "too many deliveries wait");
    if (store_delivery_insert(w->core->store, w->id, &d, e) != ERR_OK)
        return e->code;
    webhook_set_waiting(w, w->waiting + 1);
    webhook_schedule(w);
    return ERR_OK;
}

/* Its line is sent without the line's end. */
static void on_event(struct tenant *t, const struct event *event)
{
    const struct webhooks *all = t->core->webhooks;

    for (struct webhook *w = all ? all->first : NULL; w; w = w->next) {
        CLEANUP_FREE char *body = NULL;
        char message[MESSAGE_SIZE];
        struct err e;

        if (w->tenant != t || !(w->types & 1u << event->type))
            continue;
        (void)snprintf(message, sizeof(message), "%s.%" PRId64, w->id, event->id);
        body = strndup(event->line, event->len - 1);
        err_set(&e, ERR_EXHAUSTED, "memory is out");
        if (body && add_delivery(w, event_type_name(event->type), message, body, &e) == ERR_OK)
            continue;
        if (w->dropped++ == 0)
            log_warn("tenant %s: webhook %s: an event is not sent: %s", t->name, w->id, e.text);
    }
}

enum err_code core_webhook_ping(struct core *c, const char *tenant, const char *id, struct err *e)
{
    struct webhook *w = find_or_say(c, tenant, id, e);
    char time[CLOCK_RFC3339_SIZE], body[PING_MAX], message[MESSAGE_SIZE];

    if (!w)
        return e->code;
    clock_format_rfc3339(clock_real_ms(), time);
    (void)snprintf(message, sizeof(message), "%s.ping%" PRId64, w->id, clock_real_ms());
    (void)snprintf(body, sizeof(body), "{\"time\":\"%s\",\"type\":\"ping\",\"webhook\":\"%s\"}",
                   time, w->id);
    return add_delivery(w, "ping", message, body, e);
}

/* -- deliveries that are there ----------------------------------------------------------------- */

struct walk {
    void (*fn)(void *arg, const struct core_delivery *d);
    void *arg;
};

static void show_delivery(void *arg, const struct delivery_row *row)
{
    const struct walk *walk = arg;
    const struct core_delivery d = {.id = row->id,
                                    .type = row->type,
                                    .body = row->body,
                                    .attempts = row->attempts,
                                    .dead = row->dead,
                                    .made_real_ms = row->made_ms,
                                    .due_real_ms = row->due_ms,
                                    .why = row->why};

    walk->fn(walk->arg, &d);
}

enum err_code core_webhook_deliveries(struct core *c, const char *tenant, const char *id,
                                      void (*fn)(void *arg, const struct core_delivery *d),
                                      void *arg, struct err *e)
{
    struct walk walk = {fn, arg};

    if (!find_or_say(c, tenant, id, e))
        return e->code;
    return store_delivery_each(c->store, id, show_delivery, &walk, e);
}

enum err_code core_webhook_retry(struct core *c, const char *tenant, const char *id,
                                 uint64_t *count, struct err *e)
{
    struct webhook *w = find_or_say(c, tenant, id, e);

    *count = 0;
    if (!w || store_delivery_revive(c->store, id, clock_real_ms(), count, e) != ERR_OK)
        return e->code;
    w->dead = 0;
    webhook_set_waiting(w, w->waiting + *count);
    webhook_schedule(w);
    return ERR_OK;
}

/* -- life -------------------------------------------------------------------------------------- */

static enum err_code adopt(void *arg, const struct webhook_row *row, struct err *e)
{
    return make(arg, row) ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

void webhooks_resume(struct core *c)
{
    for (struct webhook *w = c->webhooks ? c->webhooks->first : NULL; w; w = w->next)
        webhook_schedule(w);
}

enum err_code webhooks_init(struct core *c, struct err *e)
{

    c->webhooks = calloc(1, sizeof(*c->webhooks));
    if (!c->webhooks || !(c->webhooks->shares = share_pool_new(WEBHOOKS_AT_ONCE)))
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    c->events->send = on_event;
    return store_webhook_each(c->store, adopt, c, e); /* sent when cay-egress is there */
}

void webhooks_free(struct core *c)
{
    struct webhooks *all = TAKE_PTR(c->webhooks);

    if (c->events)
        c->events->send = NULL;
    for (struct webhook *w = all ? all->first : NULL, *next; w; w = next) {
        next = w->next;
        webhook_free(w);
    }
    if (all)
        share_pool_free(all->shares);
    free(all);
}
