/* A name's entry is asked (its waiters hang on it), or answered (kept until its time is over, in
 * the order of age); a name that is asked is joined. Places are shared out by tenant and sandbox,
 * and a sandbox that is at its share gives up its own oldest. Waiters are told through their ids,
 * and may have gone.
 *
 * A name is two questions, for IPv6 and IPv4, over UDP, from a port that this name alone has.
 * Where an answer was cut the question is asked again over TCP, in a connection that this name
 * alone has: a server that does not finish an answer holds up no other name. */

#include "egress/flow/resolve.h"

#include "base/clock.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/share.h"
#include "egress/flow/egress.h"
#include "egress/flow/resolve_answer.h"
#include "egress/flow/resolve_channel.h"
#include "egress/flow/sandbox.h"
#include "policy/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define BUCKETS 1024u
#define TICK_MS 50 /* while names are asked */

struct waiter {
    struct waiter *next;
    uint64_t id;
    resolve_cb cb;
    struct share *share;
};

/* For the addresses of one family. */
struct question {
    struct asking *asking;
    int family;
    int status; /* as of resolve_cb */
    struct resolve_answer answer;
};

/* A port of one name, or its connection over TCP. It stays until c-ares has returned from its last
 * answer. */
struct stream {
    struct stream *next;
    struct resolve_channel *channel;
    struct share *share;
    bool done;
};

/* The state of a name while it is resolved. */
struct asking {
    struct entry *entry;
    struct stream *port;   /* NULL: there was none left, the common one is asked from */
    struct stream *stream; /* NULL: no answer was cut */
    struct question six, four;
    unsigned left;
};

/* A name that is asked or was answered. */
struct entry {
    struct resolver *resolver;
    struct entry *next;             /* of its bucket */
    struct entry *older, *newer;    /* answered ones by age of their answer */
    struct waiter *waiters, **tail; /* while it is asked */
    struct asking *asking;          /* or NULL */
    struct share *share;            /* of the sandbox that asked first */
    int status;
    uint64_t until_ms;
    size_t n;
    struct policy_address addresses[RESOLVE_ADDRESSES_MAX];
    char name[];
};

struct resolver {
    struct egress *egress;
    struct resolve_channel *common; /* over UDP, of names without a port of their own */
    struct stream *streams;
    uv_timer_t timer;
    struct entry *buckets[BUCKETS];
    struct entry *oldest, *newest;
    /* Shared out by tenant and sandbox: entries, waiters, streams over UDP and TCP. */
    struct share_pool *names, *waits, *ports, *lines;
    size_t asking;
};

/* -- the table --------------------------------------------------------------------------------- */

static struct entry **bucket_of(struct resolver *r, const char *name)
{
    uint32_t h = fnv_32(FNV_32_START, name);

    return &r->buckets[(h ^ (h >> 16)) % BUCKETS];
}

static struct entry *find(struct resolver *r, const char *name)
{
    struct entry *e = *bucket_of(r, name);

    while (e && strcmp(e->name, name) != 0)
        e = e->next;
    return e;
}

static void unlink_age(struct resolver *r, struct entry *e)
{
    *(e->older ? &e->older->newer : &r->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &r->newest) = e->older;
    e->older = e->newer = NULL;
}

static void link_age(struct resolver *r, struct entry *e)
{
    e->older = r->newest;
    e->newer = NULL;
    *(r->newest ? &r->newest->newer : &r->oldest) = e;
    r->newest = e;
}

static void forget(struct resolver *r, struct entry *e)
{
    struct entry **p = bucket_of(r, e->name);

    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    unlink_age(r, e);
    share_return(e->share);
    free(e);
}

static const char *owner_of(const struct sandbox *s, char out[static 16])
{
    (void)snprintf(out, 16, "%" PRIu32, s->slot);
    return out;
}

/* A place for a name. A sandbox that has its share already forgets its own oldest for it, else its
 * tenant's (that of a sandbox which has ended may be among them); those that are being asked
 * stay. */
static struct share *take_share(struct resolver *r, const struct sandbox *s)
{
    char owner[16];
    struct share *own = share_take(r->names, s->tenant, owner_of(s, owner));

    for (int any = 0; any < 2 && !own; any++) {
        struct entry *e = r->oldest;

        while (e && !share_is_of(e->share, s->tenant, any ? NULL : owner))
            e = e->newer;
        if (!e)
            continue;
        forget(r, e);
        own = share_take(r->names, s->tenant, owner);
    }
    return own;
}

static struct entry *new_entry(struct resolver *r, const struct sandbox *s, const char *name)
{
    size_t len = strlen(name);
    struct share *share = take_share(r, s);
    struct entry *e = share ? calloc(1, sizeof(*e) + len + 1) : NULL, **p;

    if (!e) {
        share_return(share);
        return NULL;
    }
    e->share = share;
    memcpy(e->name, name, len + 1);
    e->resolver = r;
    p = bucket_of(r, name);
    e->next = *p;
    *p = e;
    return e;
}

/* -- answers ----------------------------------------------------------------------------------- */

/* Both families, by turns, IPv6 first (RFC 8305 4): where there is no way to it, that shows at
 * once. */
static void interleave(struct entry *e, const struct resolve_answer *six,
                       const struct resolve_answer *four)
{
    size_t n6 = MIN(six->n, RESOLVE_ADDRESSES_MAX / 2); /* room for the other family */
    size_t n = n6 + MIN(four->n, RESOLVE_ADDRESSES_MAX - n6), a = 0, b = 0;

    for (e->n = 0; e->n < n; e->n++)
        e->addresses[e->n] = a < n6 && (e->n % 2 == 0 || b >= n - n6) ? six->addresses[a++]
                                                                      : four->addresses[b++];
}

static void notify_all(struct resolver *r, struct entry *e)
{
    struct waiter *w = e->waiters, *next;
    struct policy_address addresses[RESOLVE_ADDRESSES_MAX];
    size_t n = e->n;
    int status = e->status;

    /* The callback may ask for more, and so push this entry out. */
    memcpy(addresses, e->addresses, sizeof(addresses));
    e->waiters = NULL;
    for (; w; w = next) {
        next = w->next;
        share_return(w->share);
        w->cb(r->egress, w->id, status, addresses, n);
        free(w);
    }
}

/* Where a family was not answered, the other one's having none does not say that there are none. */
static int failure_of(const struct asking *k)
{
    if (k->four.status != 0 && k->four.status != -ENOENT)
        return k->four.status;
    return k->six.status != 0 ? k->six.status : -ENOENT;
}

static uint64_t kept_ms_of(const struct asking *k)
{
    int ttl_s = RESOLVE_TTL_MAX_S;

    if (k->six.answer.n > 0)
        ttl_s = MIN(ttl_s, k->six.answer.ttl_s);
    if (k->four.answer.n > 0)
        ttl_s = MIN(ttl_s, k->four.answer.ttl_s);
    return (uint64_t)ttl_s * 1000;
}

/* Both questions are answered. */
static void finish(struct asking *k)
{
    struct entry *e = k->entry;
    struct resolver *r = e->resolver;
    uint64_t kept_ms = RESOLVE_NEGATIVE_MS;

    e->asking = NULL;
    r->asking--;
    if (k->port)
        k->port->done = true;
    if (k->stream)
        k->stream->done = true;
    interleave(e, &k->six.answer, &k->four.answer);
    e->status = e->n > 0 ? 0 : failure_of(k);
    if (e->status == 0)
        kept_ms = kept_ms_of(k);
    else if (e->status == -EAGAIN)
        kept_ms = 0; /* for another sandbox there may be room */
    e->until_ms = clock_mono_ms() + kept_ms;
    free(k);
    link_age(r, e);
    notify_all(r, e);
}

static void take_answer(struct question *q, int status, const unsigned char *message, int len)
{
    q->status = status == 0 ? resolve_answer_read(message, len, q->family, &q->answer) : status;
    if (--q->asking->left == 0)
        finish(q->asking);
}

/* -- of one name ------------------------------------------------------------------------------- */

/* In the share of any that waits for the name. NULL: none has one left, or memory is out. */
static struct stream *new_stream(struct resolver *r, const struct entry *e, struct share_pool *pool,
                                 int (*make)(const struct resolve_channel *like,
                                             struct resolve_channel **out))
{
    struct share *share = NULL;
    struct stream *s;

    for (const struct waiter *w = e->waiters; w && !share; w = w->next)
        share = share_take_as(pool, w->share);
    s = share ? calloc(1, sizeof(*s)) : NULL;
    if (!s || make(r->common, &s->channel) < 0) {
        share_return(share);
        free(s);
        return NULL;
    }
    s->share = share;
    s->next = r->streams;
    r->streams = s;
    return s;
}

static void free_done(struct resolver *r)
{
    struct stream **p = &r->streams, *s;

    while ((s = *p)) {
        if (!s->done) {
            p = &s->next;
            continue;
        }
        *p = s->next;
        resolve_channel_free(s->channel);
        share_return(s->share);
        free(s);
    }
}

static void on_timer(uv_timer_t *t)
{
    struct resolver *r = t->data;

    resolve_channel_tick(r->common);
    for (struct stream *s = r->streams; s; s = s->next)
        resolve_channel_tick(s->channel);
    free_done(r);
    if (r->asking == 0 && !r->streams)
        uv_timer_stop(t);
}

/* -- asking ------------------------------------------------------------------------------------ */

static int add_waiter(struct resolver *r, const struct sandbox *s, struct entry *e, uint64_t id,
                      resolve_cb cb)
{
    char owner[16];
    struct share *share = share_take(r->waits, s->tenant, owner_of(s, owner));
    struct waiter *w = share ? malloc(sizeof(*w)) : NULL;

    if (!w) {
        share_return(share);
        return -EAGAIN;
    }
    *w = (struct waiter){.next = e->waiters, .id = id, .cb = cb, .share = share};
    e->waiters = w;
    return 0;
}

static void query(struct resolve_channel *c, struct question *q, resolve_channel_cb cb)
{
    char absolute[POLICY_NAME_MAX + 2]; /* with its final dot no search domain is tried */

    (void)snprintf(absolute, sizeof(absolute), "%s.", q->asking->entry->name);
    resolve_channel_request(c, absolute, q->family, cb, q);
}

static void on_stream(void *arg, int status, int timeouts, unsigned char *message, int len)
{
    take_answer(arg, resolve_answer_status(status), message, len);
}

static void on_datagram(void *arg, int status, int timeouts, unsigned char *message, int len)
{
    struct question *q = arg;
    struct asking *k = q->asking;

    if (!resolve_answer_is_cut(message, len)) {
        take_answer(q, resolve_answer_status(status), message, len);
        return;
    }
    if (!k->stream)
        k->stream = new_stream(k->entry->resolver, k->entry, k->entry->resolver->lines,
                               resolve_channel_new_stream);
    if (k->stream)
        query(k->stream->channel, q, on_stream);
    else
        take_answer(q, -EAGAIN, NULL, 0);
}

/* Its waiters are told, perhaps from inside this call. */
static void start(struct resolver *r, struct entry *e, struct asking *k)
{
    struct resolve_channel *c;

    *k = (struct asking){
        .entry = e,
        .six = {.asking = k, .family = AF_INET6},
        .four = {.asking = k, .family = AF_INET},
        .left = 2,
    };
    e->asking = k;
    r->asking++;
    if (!uv_is_active((uv_handle_t *)&r->timer))
        uv_timer_start(&r->timer, on_timer, TICK_MS, TICK_MS);
    k->port = new_stream(r, e, r->ports, resolve_channel_new_port);
    c = k->port ? k->port->channel : r->common;
    query(c, &k->six, on_datagram); /* the other is not answered yet: k stays */
    query(c, &k->four, on_datagram);
}

void resolver_query(struct resolver *r, const struct sandbox *s, const char *name, uint64_t id,
                    resolve_cb cb)
{
    struct resolve_answer here;
    struct entry *e;
    struct asking *k;
    int status;

    if (resolve_answer_here(name, &status, &here)) {
        cb(r->egress, id, status, here.addresses, here.n);
        return;
    }
    e = find(r, name);
    if (e && !e->asking && e->until_ms > clock_mono_ms()) {
        struct entry copy = *e;

        memcpy(copy.addresses, e->addresses, sizeof(copy.addresses));
        cb(r->egress, id, copy.status, copy.addresses, copy.n);
        return;
    }
    if (e && !e->asking) {
        forget(r, e);
        e = NULL;
    }
    k = e ? NULL : malloc(sizeof(*k));
    if (!e && k)
        e = new_entry(r, s, name);
    if (!e || add_waiter(r, s, e, id, cb) < 0) {
        if (e && !e->asking) {
            link_age(r, e);
            forget(r, e);
        }
        free(k);
        cb(r->egress, id, -EAGAIN, NULL, 0);
        return;
    }
    if (k)
        start(r, e, k);
}

/* -- life -------------------------------------------------------------------------------------- */

static void free_resolver(struct resolver *r)
{
    share_pool_free(r->names);
    share_pool_free(r->waits);
    share_pool_free(r->ports);
    share_pool_free(r->lines);
    free(r);
}

int resolver_new(struct egress *eg, const char *servers, struct resolver **out)
{
    struct resolver *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return -ENOMEM;
    r->egress = eg;
    r->names = share_pool_new(RESOLVE_CACHE_MAX);
    r->waits = share_pool_new(RESOLVE_WAITERS_MAX);
    r->ports = share_pool_new(RESOLVE_PORTS_MAX);
    r->lines = share_pool_new(RESOLVE_STREAMS_MAX);
    rc = -ENOMEM;
    if (r->names && r->waits && r->ports && r->lines)
        rc = resolve_channel_new(eg->loop, servers, &r->common);
    if (rc < 0) {
        free_resolver(r);
        return rc;
    }
    uv_timer_init(eg->loop, &r->timer);
    r->timer.data = r;
    *out = r;
    return 0;
}
