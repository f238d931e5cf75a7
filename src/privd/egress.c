/* Two things meet here: sandboxes (egress_open and _close, called by the steps of a sandbox's life,
 * and the same for command sandboxes) and the channels to the processes of cay-egress, of which the
 * slot's number chooses one. A process that has said HELLO is told of all sandboxes in slices, a
 * turn of the loop each, then SYNC; from HELLO on, opens and closes are sent at once, also of slots
 * that its slices have not reached. Before that, sockets wait in the slot or command sandbox,
 * which owns them until they are sent. */

#include "privd/egress.h"

#include "privd/command_sandbox.h"

#include "base/log.h"
#include "base/util.h"
#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/options.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/slots.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SLICE_SANDBOXES 4    /* about 25 µs each */
#define SLICE_SLOTS     1024 /* looked at */
#define TURN_MS         1

/* A process of cay-egress. */
struct egress_channel {
    struct privd *privd;
    uint32_t number;
    struct privsep_server *server;
    struct loop_source source;
    bool greeted;
    uint32_t next; /* slot to be told of next; slots_max: all were told */
    struct loop_timer timer;
};

struct egress {
    uint32_t n;
    struct egress_channel channels[EGRESS_PROCESSES_MAX];
};

static struct egress_channel *channel_of(struct privd *p, const struct slot *s)
{
    return p->egress ? &p->egress->channels[s->number % p->egress->n] : NULL;
}

static void drop_sockets(int fds[static PRIVSEP_EGRESS_FDS])
{
    for (size_t i = 0; i < PRIVSEP_EGRESS_FDS; i++)
        util_close(&fds[i]);
}

/* Sends what waits; privsep_server_send closes it in every case. */
static int send_sockets(struct egress_channel *c, const struct slot *s, uint32_t command_sandbox,
                        int waiting[static PRIVSEP_EGRESS_FDS])
{
    struct privsep_msg m = {.op = PRIVSEP_EGRESS_OPEN, .slot = s->number, .gen = s->gen};
    int fds[PRIVSEP_EGRESS_FDS];

    m.u.egress.command = command_sandbox;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = TAKE_FD(waiting[i]);
    return privsep_server_send(c->server, 0, &m, fds, ARRAY_SIZE(fds));
}

/* They wait for a cay-egress, as long as the sandbox lives. */
static void hold_sockets(int fds[static PRIVSEP_EGRESS_FDS])
{
    for (size_t i = 0; i < PRIVSEP_EGRESS_FDS; i++)
        task_move_high_fd(&fds[i]);
}

/* ESRCH: its PID 1 was just killed, which its pidfd will tell next. */
static void no_sockets(const struct slot *s, uint32_t command_sandbox, int r)
{
    log_write(r == -ESRCH ? LOG_INFO : LOG_ERROR,
              "sandbox %.*s, slot %u%s: no sockets for cay-egress in it, so it has no network: %s",
              PRIVSEP_ID_SIZE, s->id, s->number, command_sandbox ? ", a command sandbox of it" : "",
              strerror(-r));
}

/* Nothing else of the sandbox, or of the command sandbox, is touched when that fails. */
static void open_sockets(struct privd *p, const struct slot *s, uint32_t command_sandbox, int pidfd,
                         int fds[static PRIVSEP_EGRESS_FDS])
{
    struct runtime_sandbox sb = {.slot = s->number, .gen = s->gen, .pidfd = pidfd};
    struct egress_channel *c = channel_of(p, s);
    int r;

    if (!c)
        return;
    r = s->driver->listeners(p->rt, &sb, fds);
    if (r < 0)
        no_sockets(s, command_sandbox, r);
    else if (c->greeted)
        (void)send_sockets(c, s, command_sandbox, fds);
    else
        hold_sockets(fds);
}

void egress_open(struct privd *p, struct slot *s)
{
    open_sockets(p, s, 0, s->pidfd, s->egress_fds);
}

void egress_close(struct privd *p, struct slot *s)
{
    struct privsep_msg m = {.op = PRIVSEP_EGRESS_CLOSE, .slot = s->number, .gen = s->gen};
    struct egress_channel *c = channel_of(p, s);

    drop_sockets(s->egress_fds);
    if (c && c->greeted && s->id[0])
        (void)privsep_server_send(c->server, 0, &m, NULL, 0);
}

void egress_open_command_sandbox(struct privd *p, struct command_sandbox *r)
{
    open_sockets(p, r->slot, r->number, r->pidfd, r->egress_fds);
}

void egress_close_command_sandbox(struct privd *p, struct command_sandbox *r)
{
    struct privsep_msg m = {.op = PRIVSEP_EGRESS_CLOSE, .slot = r->slot_number, .gen = r->gen};
    struct egress_channel *c = r->slot ? channel_of(p, r->slot) : NULL;

    drop_sockets(r->egress_fds);
    m.u.egress.command = r->number;
    if (c && c->greeted)
        (void)privsep_server_send(c->server, 0, &m, NULL, 0);
}

/* -- a cay-egress that has just begun ---------------------------------------------------------- */

static bool has_owner(const struct slot *s)
{
    return s->pidfd >= 0 && (permit_lives(s->state) || s->state == SLOT_STARTING) && s->id[0];
}

/* Those that an earlier cay-egress had are made anew: its copies went with it. A cay-egress that
 * ran before privd was restarted still has them, and with them the ports: the kernel then refuses
 * new ones. (Or a process inside took a port while no cay-egress had it: that sandbox has no
 * network, which cay-egress says.) */
static int send_listeners(struct egress_channel *c, const struct slot *s, uint32_t command_sandbox,
                          int pidfd, int fds[static PRIVSEP_EGRESS_FDS])
{
    struct privsep_msg keep = {.op = PRIVSEP_EGRESS_KEEP, .slot = s->number, .gen = s->gen};
    struct runtime_sandbox sb = {.slot = s->number, .gen = s->gen, .pidfd = pidfd};
    int r = fds[0] < 0 ? s->driver->listeners(c->privd->rt, &sb, fds) : 0;

    if (r == 0)
        return send_sockets(c, s, command_sandbox, fds);
    keep.u.egress.command = command_sandbox;
    if (r == -EADDRINUSE)
        return privsep_server_send(c->server, 0, &keep, NULL, 0);
    no_sockets(s, command_sandbox, r);
    return 0;
}

static int send_one(struct egress_channel *c, struct slot *s)
{
    int r = send_listeners(c, s, 0, s->pidfd, s->egress_fds);

    for (struct command_sandbox *m = s->command_sandboxes; r == 0 && m; m = m->next)
        if (m->pidfd >= 0 && !m->ending)
            r = send_listeners(c, s, m->number, m->pidfd, m->egress_fds);
    return r;
}

static void send_slice(void *arg)
{
    struct egress_channel *c = arg;
    struct privd *p = c->privd;
    struct privsep_msg done = {.op = PRIVSEP_EGRESS_SYNC};
    uint32_t end = MIN(c->next + SLICE_SLOTS, p->options.slots_max);
    int n_announced = 0;

    for (; c->next < end && n_announced < SLICE_SANDBOXES; c->next++) {
        struct slot *s = &p->slots[c->next];

        if (channel_of(p, s) != c || !has_owner(s))
            continue;
        if (send_one(c, s) < 0)
            return; /* the peer is gone */
        n_announced++;
    }
    if (c->next < p->options.slots_max)
        loop_arm(&p->loop, &c->timer, TURN_MS, send_slice, c);
    else
        (void)privsep_server_send(c->server, 0, &done, NULL, 0);
}

/* -- the channel ------------------------------------------------------------------------------- */

static void on_request(void *arg, const struct privsep_msg *m)
{
    struct egress_channel *c = arg;
    struct privsep_msg answer = {.op = m->op, .seq = m->seq};

    if (m->op != PRIVSEP_HELLO) {
        answer.status = -EPERM; /* a process of that user may ask for nothing */
        (void)privsep_server_send(c->server, 0, &answer, NULL, 0);
        return;
    }
    answer.u.hello.version = PRIVSEP_VERSION;
    memcpy(answer.u.hello.boot_id, c->privd->boot_id, sizeof(answer.u.hello.boot_id));
    if (privsep_server_send(c->server, 0, &answer, NULL, 0) < 0)
        return;
    c->greeted = true;
    c->next = 0;
    send_slice(c);
}

static void on_peer(void *arg, bool there)
{
    struct egress_channel *c = arg;

    c->greeted = false;
    loop_disarm(&c->privd->loop, &c->timer);
    if (log_rate_allows(&c->privd->peer_log))
        log_info("cay-egress %u %s", c->number, there ? "has come" : "is gone");
}

static void on_server(void *arg, uint32_t events)
{
    privsep_server_dispatch(((struct egress_channel *)arg)->server);
}

static int open_channel(struct privd *p, struct egress_channel *c)
{
    struct privsep_server_events ev = {on_request, on_peer, c};
    char path[OPTIONS_PATH_MAX + 32];
    int r;

    c->privd = p;
    c->source = LOOP_SOURCE_NONE;
    snprintf(path, sizeof(path), "%s/egress-%u.sock", p->options.run_dir, c->number);
    r = privsep_server_new(path, p->options.egress_uid, &ev, &c->server);
    return r < 0 ? r : loop_add(&p->loop, &c->source, privsep_server_fd(c->server), on_server, c);
}

int egress_init(struct privd *p)
{
    int r = 0;

    if (p->options.egress_processes == 0)
        return 0;
    p->egress = calloc(1, sizeof(*p->egress));
    if (!p->egress)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < p->options.egress_processes; i++) {
        p->egress->n = i + 1;
        p->egress->channels[i].number = i;
        r = open_channel(p, &p->egress->channels[i]);
    }
    return r;
}

void egress_free(struct privd *p)
{
    for (uint32_t i = 0; p->egress && i < p->egress->n; i++) {
        struct egress_channel *c = &p->egress->channels[i];

        loop_remove(&p->loop, &c->source);
        loop_disarm(&p->loop, &c->timer);
        privsep_server_free(c->server);
    }
    free(TAKE_PTR(p->egress));
}
