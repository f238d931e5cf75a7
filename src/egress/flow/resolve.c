/* A name's entry is asked (its waiters hang on it), or answered (kept until its time is over,
 * in the order of age); a question that is under way is joined. Places are shared out by tenant
 * and sandbox, and a sandbox that is at its share gives up its own oldest. c-ares tells which
 * sockets to watch and when to come again; waiters are told through their ids, and may have
 * gone. */

#include "egress/flow/resolve.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "egress/flow/egress.h"
#include "egress/flow/sandbox.h"
#include "policy/policy.h"

#include <ares.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define BUCKETS 1024u
#define TRY_MS  2000 /* for one server, the first time */
#define TRIES   2
#define TICK_MS 50 /* while questions are under way */

struct waiter {
    struct waiter *next;
    uint64_t id;
    resolve_cb cb;
    struct share *share;
};

/* A name that is asked or was answered. */
struct entry {
    struct resolver *resolver;
    struct entry *next;             /* of its bucket */
    struct entry *older, *newer;    /* answered ones by age of their answer */
    struct waiter *waiters, **tail; /* while it is asked */
    bool asking;
    struct share *share; /* of the sandbox that asked first */
    int status;
    uint64_t until_ms;
    size_t n;
    struct policy_address addresses[RESOLVE_ADDRESSES_MAX];
    char name[];
};

struct watch {
    uv_poll_t poll;
    struct resolver *resolver;
    struct watch *next;
    ares_socket_t fd;
};

struct resolver {
    struct egress *egress;
    ares_channel channel;
    uv_timer_t timer;
    struct watch *watches;
    struct entry *buckets[BUCKETS];
    struct entry *oldest, *newest;
    struct share_pool *names, *waits; /* entries, waiters: shared out by tenant and sandbox */
    size_t asking;
    /* A socket could not be watched: c-ares goes on with it, and tells of it only once. */
    bool unwatched;
};

/* -- the table --------------------------------------------------------------------------------- */

static struct entry **bucket_of(struct resolver *r, const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
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

static void take_nodes(struct entry *e, const struct ares_addrinfo *info, int family, int *ttl)
{
    for (const struct ares_addrinfo_node *n = info->nodes; n; n = n->ai_next) {
        if (n->ai_family != family || e->n >= RESOLVE_ADDRESSES_MAX)
            continue;
        policy_address_from(n->ai_addr, &e->addresses[e->n++]);
        *ttl = MIN(*ttl, MAX(n->ai_ttl, 0));
    }
}

/* Both families, by turns, IPv6 first (RFC 8305 4): where there is no way to it, that shows at
 * once. */
static void interleave(struct entry *e, size_t n6)
{
    struct policy_address sorted[RESOLVE_ADDRESSES_MAX] = {0};
    size_t a = 0, b = n6;

    for (size_t i = 0; i < e->n; i++)
        sorted[i] = (a < n6 && (i % 2 == 0 || b >= e->n)) ? e->addresses[a++] : e->addresses[b++];
    memcpy(e->addresses, sorted, e->n * sizeof(sorted[0]));
}

static int status_of(int ares_status)
{
    switch (ares_status) {
    case ARES_SUCCESS: return 0;
    case ARES_ENODATA:
    case ARES_ENOTFOUND: return -ENOENT;
    case ARES_ETIMEOUT: return -ETIMEDOUT;
    case ARES_ENOMEM: return -EAGAIN;
    default: return -EPROTO;
    }
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

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct entry *e = arg;
    struct resolver *r = e->resolver;
    int ttl = RESOLVE_TTL_MAX_S;

    e->asking = false;
    r->asking--;
    e->status = status_of(status);
    if (info && e->status == 0) {
        size_t n6;

        take_nodes(e, info, AF_INET6, &ttl);
        n6 = MIN(e->n, (size_t)RESOLVE_ADDRESSES_MAX / 2); /* room for the other family */
        e->n = n6;
        take_nodes(e, info, AF_INET, &ttl);
        interleave(e, n6);
        if (e->n == 0)
            e->status = -ENOENT;
    }
    if (info)
        ares_freeaddrinfo(info);
    e->until_ms = clock_mono_ms() + (e->status == 0 ? (uint64_t)ttl * 1000 : RESOLVE_NEGATIVE_MS);
    link_age(r, e);
    notify_all(r, e);
}

static void free_resolver(struct resolver *r)
{
    share_pool_free(r->names);
    share_pool_free(r->waits);
    free(r);
}

/* -- c-ares on the loop ------------------------------------------------------------------------ */

static void on_poll(uv_poll_t *p, int status, int events)
{
    struct watch *w = p->data;
    struct resolver *r = w->resolver;
    bool both = status < 0;

    ares_process_fd(r->channel, both || events & UV_READABLE ? w->fd : ARES_SOCKET_BAD,
                    both || events & UV_WRITABLE ? w->fd : ARES_SOCKET_BAD);
}

static void on_watch_closed(uv_handle_t *h)
{
    free(h->data);
}

static void unwatch(struct resolver *r, ares_socket_t fd)
{
    struct watch **p = &r->watches, *w;

    while (*p && (*p)->fd != fd)
        p = &(*p)->next;
    w = *p;
    if (!w)
        return;
    *p = w->next;
    uv_close((uv_handle_t *)&w->poll, on_watch_closed);
}

static struct watch *watch(struct resolver *r, ares_socket_t fd)
{
    struct watch *w;

    for (w = r->watches; w; w = w->next)
        if (w->fd == fd)
            return w;
    w = calloc(1, sizeof(*w));
    if (!w || uv_poll_init(r->egress->loop, &w->poll, fd) < 0) {
        free(w); /* the question times out, unless watch_again comes before */
        r->unwatched = true;
        return NULL;
    }
    w->poll.data = w;
    w->resolver = r;
    w->fd = fd;
    w->next = r->watches;
    r->watches = w;
    return w;
}

static void on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct resolver *r = arg;
    struct watch *w;

    if (!readable && !writable) {
        unwatch(r, fd);
        return;
    }
    w = watch(r, fd);
    if (w)
        uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
                      on_poll);
}

static void watch_again(struct resolver *r)
{
    ares_socket_t fds[ARES_GETSOCK_MAXNUM];
    int bits = ares_getsock(r->channel, fds, ARES_GETSOCK_MAXNUM);

    r->unwatched = false;
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; i++)
        if (ARES_GETSOCK_READABLE(bits, i) || ARES_GETSOCK_WRITABLE(bits, i))
            on_socket_state(r, fds[i], ARES_GETSOCK_READABLE(bits, i) != 0,
                            ARES_GETSOCK_WRITABLE(bits, i) != 0);
}

static void on_timer(uv_timer_t *t)
{
    struct resolver *r = t->data;

    if (r->unwatched)
        watch_again(r);
    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    if (r->asking == 0)
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

void resolver_query(struct resolver *r, const struct sandbox *s, const char *name, uint64_t id,
                    resolve_cb cb)
{
    const struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NOSORT, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct entry *e = find(r, name);
    char absolute[POLICY_NAME_MAX + 2];

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
    if (!e)
        e = new_entry(r, s, name);
    if (!e || add_waiter(r, s, e, id, cb) < 0) {
        if (e && !e->asking) {
            link_age(r, e);
            forget(r, e);
        }
        cb(r->egress, id, -EAGAIN, NULL, 0);
        return;
    }
    if (e->asking)
        return;
    e->asking = true;
    r->asking++;
    if (!uv_is_active((uv_handle_t *)&r->timer))
        uv_timer_start(&r->timer, on_timer, TICK_MS, TICK_MS);
    /* With its final dot no search domain is tried. */
    snprintf(absolute, sizeof(absolute), "%s.", name);
    ares_getaddrinfo(r->channel, absolute, NULL, &hints, on_answer, e);
}

/* -- life -------------------------------------------------------------------------------------- */

static int open_channel(struct resolver *r, const char *servers)
{
    struct ares_options o = {
        .flags = ARES_FLAG_EDNS | ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TRY_MS,
        .tries = TRIES,
        .lookups = (char *)"b",
        .ednspsz = 1232,
        .sock_state_cb = on_socket_state,
        .sock_state_cb_data = r,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
               ARES_OPT_EDNSPSZ | ARES_OPT_SOCK_STATE_CB;
    int rc = ares_init_options(&r->channel, &o, mask);

    if (rc == ARES_SUCCESS && servers && *servers) {
        rc = ares_set_servers_ports_csv(r->channel, servers);
        if (rc != ARES_SUCCESS)
            ares_destroy(r->channel);
    }
    if (rc != ARES_SUCCESS)
        log_error("DNS servers \"%s\": %s", servers ? servers : "of the host", ares_strerror(rc));
    return rc == ARES_SUCCESS ? 0 : -EINVAL;
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
    rc = r->names && r->waits ? open_channel(r, servers) : -ENOMEM;
    if (rc < 0) {
        free_resolver(r);
        return rc;
    }
    uv_timer_init(eg->loop, &r->timer);
    r->timer.data = r;
    *out = r;
    return 0;
}
