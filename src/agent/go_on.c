/* The connections are served one by one; the others wait in the socket. Programs of the sandbox can
 * connect too: the kernel says who is at the other end, and those are closed before a byte of
 * theirs is read. A peer without a number in this pid namespace is outside of it, and outside there
 * are only cay's own programs that ever enter this network namespace.
 *
 * In an image cay-init is what it was when privd had taken its files. So it goes on from there in
 * both cases, with its old files or with another sandbox's. */

#include "agent/go_on.h"

#include "agent/boot.h"
#include "agent/prepare.h"
#include "base/io.h"
#include "sys/fdpass.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define BACKLOG      16
#define ACCEPT_BATCH 64
#define REST_MS      1
#define REST_TURNS   5000u /* of REST_MS each */

struct go_on {
    struct agent *agent;
    uv_poll_t listener, *peer; /* peer NULL: none is being served */
    uv_timer_t timer;          /* until all connections are gone */
    unsigned turns;
    int fd, peer_fd;
    bool is_taken;
};

static void on_peer(uv_poll_t *poll, int status, int events);
static void on_connect(uv_poll_t *poll, int status, int events);

/* -- the connection ---------------------------------------------------------------------------- */

static void on_peer_closed(uv_handle_t *handle)
{
    free(handle);
}

static void end_peer(struct go_on *g)
{
    uv_poll_stop(g->peer);
    util_close(&g->peer_fd);
    uv_close((uv_handle_t *)g->peer, on_peer_closed);
    g->peer = NULL;
    uv_poll_start(&g->listener, UV_READABLE, on_connect);
}

static void answer(struct go_on *g, const char *why)
{
    char text[1 + AGENT_GO_ON_TEXT] = {why ? AGENT_FAILED : AGENT_READY};

    if (why)
        snprintf(text + 1, sizeof(text) - 1, "%s", why);
    (void)!send(g->peer_fd, text, why ? strlen(text) + 1 : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    end_peer(g);
}

static bool is_outside(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0;
}

static bool serve_peer(struct go_on *g, int fd)
{
    uv_poll_t *poll = is_outside(fd) ? calloc(1, sizeof(*poll)) : NULL;

    if (!poll || uv_poll_init(g->agent->loop, poll, fd) < 0) {
        free(poll);
        close(fd);
        return false;
    }
    poll->data = g;
    g->peer = poll;
    g->peer_fd = fd;
    uv_poll_stop(&g->listener);
    uv_poll_start(poll, UV_READABLE, on_peer);
    return true;
}

static void on_connect(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct go_on *g = poll->data;

    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(g->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 || serve_peer(g, fd))
            return;
    }
}

/* -- TAKE -------------------------------------------------------------------------------------- */

static void on_rested(uv_timer_t *timer)
{
    struct go_on *g = timer->data;
    struct agent *a = g->agent;
    int rc = -ETIMEDOUT;

    if (http_server_connections(a->server) > 0 && g->turns++ < REST_TURNS) {
        uv_timer_start(timer, on_rested, REST_MS, 0);
        return;
    }
    if (http_server_connections(a->server) == 0)
        rc = prepare_give_up(a);
    g->is_taken = rc == 0;
    if (rc < 0) {
        http_server_go_on(a->server);
        prepare_end(a);
    }
    answer(g, rc < 0 ? "its files cannot be given up" : NULL);
}

static void take(struct go_on *g)
{
    struct err e;

    if (g->is_taken || prepare_check(g->agent, &e) != ERR_OK) {
        answer(g, g->is_taken ? "it is being dumped already" : e.text);
        return;
    }
    prepare_end(g->agent); /* its time: from here on privd has it */
    g->agent->prepared = true;
    http_server_rest(g->agent->server);
    g->turns = 0;
    uv_timer_start(&g->timer, on_rested, 0, 0);
}

/* -- BACK, NEW --------------------------------------------------------------------------------- */

static void serve_again(struct go_on *g)
{
    g->is_taken = false;
    prepare_end(g->agent);
    http_server_go_on(g->agent->server);
}

static void take_back(struct go_on *g, const struct agent_go_on *m, const int *fds)
{
    int rc = g->is_taken ? prepare_take_back(g->agent, m, fds) : -EALREADY;

    if (rc == 0)
        serve_again(g);
    answer(g, rc < 0 ? strerror(-rc) : NULL);
}

/* The first start has settled which file is at which number. */
static enum err_code begin_anew(struct go_on *g, const struct agent_go_on *m, const int *fds,
                                int boot_fd, struct err *e)
{
    struct agent *a = g->agent;
    size_t cgroup_fds = a->spawn.cgroup_fd_count;
    int oom_fd = a->oom_fd, rc;

    if (!g->is_taken)
        return err_set(e, ERR_CONFLICT, "it was not dumped");
    if (boot_read(a, boot_fd, e) != ERR_OK)
        return e->code;
    if (a->spawn.cgroup_fd_count > cgroup_fds)
        return err_set(e, ERR_INVALID, "more control groups than at its start");
    a->oom_fd = MIN(a->oom_fd, oom_fd);
    if ((rc = prepare_take_back(a, m, fds)) < 0)
        return err_set_sys(e, ERR_INTERNAL, rc, "taking the files of a restore");
    if (boot_claim(a, boot_fd, e) == ERR_OK)
        serve_again(g);
    return e->code;
}

static void restored(struct go_on *g, const struct agent_go_on *m, int *fds)
{
    struct err e = {0};
    int boot_fd = TAKE_FD(fds[0]);

    end_peer(g);
    boot_report(boot_fd, begin_anew(g, m, fds, boot_fd, &e) == ERR_OK ? NULL : &e);
}

/* -- the message ------------------------------------------------------------------------------- */

static bool is_whole(const struct agent_go_on *m, ssize_t got, size_t n)
{
    return got == (ssize_t)sizeof(*m) && m->kind >= AGENT_GO_ON_TAKE &&
           m->kind <= AGENT_GO_ON_NEW && m->listener <= 1 && m->oom <= 1 &&
           m->cgroup_fds <= AGENT_CGROUP_FDS_MAX &&
           n == (m->kind == AGENT_GO_ON_NEW) + m->listener + m->cgroup_fds + m->oom;
}

static void on_peer(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct go_on *g = poll->data;
    struct agent_go_on m = {0};
    int fds[AGENT_GO_ON_FDS_MAX];
    size_t n = 0;
    ssize_t got = fdpass_recv(g->peer_fd, &m, sizeof(m), fds, ARRAY_SIZE(fds), &n, MSG_DONTWAIT);

    if (got == -EAGAIN)
        return;
    uv_poll_stop(poll); /* one message of each */
    if (!is_whole(&m, got, n))
        end_peer(g);
    else if (m.kind == AGENT_GO_ON_TAKE)
        take(g);
    else if (m.kind == AGENT_GO_ON_BACK)
        take_back(g, &m, fds);
    else
        restored(g, &m, fds);
    for (size_t i = 0; i < n; i++)
        util_close(&fds[i]);
}

/* -- at the start ------------------------------------------------------------------------------ */

static int bind_name(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memcpy(name.sun_path + 1, AGENT_GO_ON_NAME, sizeof(AGENT_GO_ON_NAME) - 1);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof(AGENT_GO_ON_NAME);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, size) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int go_on_listen(struct agent *a)
{
    if (a->command_sandbox)
        return 0;
    CLEANUP_CLOSE int fd = bind_name();
    struct go_on *g = fd < 0 ? NULL : calloc(1, sizeof(*g));

    if (!g)
        return fd < 0 ? fd : -ENOMEM;
    *g = (struct go_on){.agent = a, .fd = fd, .peer_fd = -1};
    g->listener.data = g->timer.data = g;
    uv_timer_init(a->loop, &g->timer);
    uv_timer_init(a->loop, &a->not_taken);
    if (uv_poll_init(a->loop, &g->listener, fd) < 0 ||
        uv_poll_start(&g->listener, UV_READABLE, on_connect) < 0) {
        free(g);
        return -EIO;
    }
    g->fd = TAKE_FD(fd);
    a->go_on = g;
    return 0;
}
