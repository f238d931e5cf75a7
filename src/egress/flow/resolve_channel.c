/* c-ares tells which sockets to watch, and is told of their events and of time
 * (resolve_channel_tick). c-ares asks from one port as long as any question of a channel is not
 * answered, so that who guesses answers for a slow name has but the 16 bits of the question's
 * number to guess: a channel over UDP of its own for each name has a port of its own, which the
 * kernel chooses. Questions over UDP have ARES_FLAG_IGNTC: c-ares by itself would put all that
 * have to go over TCP into one connection to a server, and give up those that are behind half an
 * answer with it. So a channel over TCP is made for one name, and freed after it: c-ares closes a
 * connection whose questions are answered. */

#include "egress/flow/resolve_channel.h"

#include "base/log.h"
#include "base/util.h"

#include <ares.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <sys/socket.h>

#define TRY_MS 2000 /* for one server, the first time */
#define TRIES  2

struct watch {
    uv_poll_t poll;
    struct resolve_channel *channel;
    struct watch *next;
    ares_socket_t fd;
};

struct resolve_channel {
    uv_loop_t *loop;
    ares_channel ares;
    struct watch *watches;
    /* A socket could not be watched: c-ares goes on with it, and tells of it only once. */
    bool unwatched;
};

/* -- sockets ----------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *p, int status, int events)
{
    const struct watch *w = p->data;
    bool both = status < 0;

    ares_process_fd(w->channel->ares, both || events & UV_READABLE ? w->fd : ARES_SOCKET_BAD,
                    both || events & UV_WRITABLE ? w->fd : ARES_SOCKET_BAD);
}

static void on_watch_closed(uv_handle_t *h)
{
    free(h->data);
}

static void unwatch(struct resolve_channel *c, ares_socket_t fd)
{
    struct watch **p = &c->watches, *w;

    while (*p && (*p)->fd != fd)
        p = &(*p)->next;
    w = *p;
    if (!w)
        return;
    *p = w->next;
    uv_close((uv_handle_t *)&w->poll, on_watch_closed);
}

static struct watch *watch(struct resolve_channel *c, ares_socket_t fd)
{
    struct watch *w;

    for (w = c->watches; w; w = w->next)
        if (w->fd == fd)
            return w;
    w = calloc(1, sizeof(*w));
    if (!w || uv_poll_init(c->loop, &w->poll, fd) < 0) {
        free(w); /* the question times out, unless watch_again comes before */
        c->unwatched = true;
        return NULL;
    }
    w->poll.data = w;
    w->channel = c;
    w->fd = fd;
    w->next = c->watches;
    c->watches = w;
    return w;
}

static void on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct resolve_channel *c = arg;
    struct watch *w;

    if (!readable && !writable) {
        unwatch(c, fd);
        return;
    }
    w = watch(c, fd);
    if (w)
        uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
                      on_poll);
}

static void watch_again(struct resolve_channel *c)
{
    ares_socket_t fds[ARES_GETSOCK_MAXNUM];
    int bits = ares_getsock(c->ares, fds, ARES_GETSOCK_MAXNUM);

    c->unwatched = false;
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; i++)
        if (ARES_GETSOCK_READABLE(bits, i) || ARES_GETSOCK_WRITABLE(bits, i))
            on_socket_state(c, fds[i], ARES_GETSOCK_READABLE(bits, i) != 0,
                            ARES_GETSOCK_WRITABLE(bits, i) != 0);
}

/* -- asking ------------------------------------------------------------------------------------ */

void resolve_channel_tick(struct resolve_channel *c)
{
    if (c->unwatched)
        watch_again(c);
    ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

void resolve_channel_request(struct resolve_channel *c, const char *name, int family,
                             resolve_channel_cb cb, void *arg)
{
    ares_query(c->ares, name, ns_c_in, family == AF_INET6 ? ns_t_aaaa : ns_t_a, cb, arg);
}

/* -- life -------------------------------------------------------------------------------------- */

/* with_servers: the caller sets them, and nothing is looked for in the host's files. */
static int init(struct resolve_channel *c, int flags, bool with_servers)
{
    struct in_addr none = {0};
    struct ares_options o = {
        .flags = flags | ARES_FLAG_EDNS | ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TRY_MS,
        .tries = TRIES,
        .ndots = 1,
        .lookups = (char *)"b",
        .ednspsz = RESOLVE_CHANNEL_EDNS_BYTES,
        .servers = &none,
        .nservers = 1,
        .sock_state_cb = on_socket_state,
        .sock_state_cb_data = c,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
               ARES_OPT_EDNSPSZ | ARES_OPT_SOCK_STATE_CB;

    if (with_servers)
        mask |= ARES_OPT_SERVERS | ARES_OPT_DOMAINS | ARES_OPT_NDOTS | ARES_OPT_SORTLIST;
    return ares_init_options(&c->ares, &o, mask);
}

int resolve_channel_new(uv_loop_t *loop, const char *servers, struct resolve_channel **out)
{
    struct resolve_channel *c = calloc(1, sizeof(*c));
    bool given = servers && *servers;
    int rc;

    if (!c)
        return -ENOMEM;
    c->loop = loop;
    rc = init(c, ARES_FLAG_IGNTC, given);
    if (rc == ARES_SUCCESS && given) {
        rc = ares_set_servers_ports_csv(c->ares, servers);
        if (rc != ARES_SUCCESS)
            ares_destroy(c->ares);
    }
    if (rc != ARES_SUCCESS) {
        log_error("DNS servers \"%s\": %s", given ? servers : "of the host", ares_strerror(rc));
        free(c);
        return -EINVAL;
    }
    *out = c;
    return 0;
}

static int new_like(const struct resolve_channel *like, int flags, struct resolve_channel **out)
{
    struct ares_addr_port_node *servers = NULL;
    struct resolve_channel *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->loop = like->loop;
    rc = ares_get_servers_ports(like->ares, &servers);
    if (rc == ARES_SUCCESS)
        rc = init(c, flags, true);
    if (rc == ARES_SUCCESS) {
        rc = ares_set_servers_ports(c->ares, servers);
        if (rc != ARES_SUCCESS)
            ares_destroy(c->ares);
    }
    ares_free_data(servers);
    if (rc != ARES_SUCCESS) {
        free(c);
        return -ENOMEM;
    }
    *out = c;
    return 0;
}

int resolve_channel_new_stream(const struct resolve_channel *like, struct resolve_channel **out)
{
    return new_like(like, ARES_FLAG_USEVC, out);
}

int resolve_channel_new_port(const struct resolve_channel *like, struct resolve_channel **out)
{
    return new_like(like, ARES_FLAG_IGNTC, out);
}

void resolve_channel_free(struct resolve_channel *c)
{
    if (!c)
        return;
    ares_destroy(c->ares); /* which tells of each socket that it closes */
    free(c);
}
