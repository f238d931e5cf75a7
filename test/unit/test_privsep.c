/* The two ends of privd's channel against each other, and against peers that misbehave. */
#include "base/log.h"
#include "privd/pace.h"
#include "privsep/client.h"
#include "privsep/packet.h"
#include "privsep/server.h"
#include "skip.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define LATER_MAX 20000

struct fixture {
    char dir[64], path[96];
    struct privsep_server *server;
    uv_loop_t loop;
    uv_poll_t server_poll;
    struct privsep_client *client;
    /* what the server's owner saw */
    int requests, peers_up, peers_down;
    int ignored; /* that many HELLOs are not answered */
    bool silent; /* keep requests in later instead of answering */
    struct privsep_msg later[LATER_MAX];
    size_t n_later;
    /* what the client's owner saw */
    int ups, downs, events, replies, failures, last_failure, fds_received;
    uint64_t last_event_slot;
    size_t event_fds;
};

static void answer(struct fixture *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot};
    int fds[PRIVSEP_MAX_FDS];
    size_t n = 0;

    if (m->op == PRIVSEP_HELLO)
        r.u.hello.version = PRIVSEP_VERSION;
    if (m->op == PRIVSEP_CONNECT)
        for (; n < m->u.connect.count; n++)
            fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(privsep_server_send(f->server, 0, &r, fds, n), 0);
}

static void on_request(void *arg, const struct privsep_msg *m)
{
    struct fixture *f = arg;

    f->requests++;
    if (m->op == PRIVSEP_HELLO && f->ignored > 0) {
        f->ignored--;
        return;
    }
    if (f->silent && m->op != PRIVSEP_HELLO) {
        assert_true(f->n_later < LATER_MAX);
        f->later[f->n_later++] = *m;
    } else {
        answer(f, m);
    }
}

static void on_peer(void *arg, bool there)
{
    struct fixture *f = arg;

    *(there ? &f->peers_up : &f->peers_down) += 1;
}

static void on_up(void *arg, const struct privsep_msg *hello)
{
    ((struct fixture *)arg)->ups++;
}

static void on_down(void *arg)
{
    ((struct fixture *)arg)->downs++;
}

static void on_event(void *arg, const struct privsep_msg *m, int *fds, size_t n_fds)
{
    struct fixture *f = arg;

    f->events++;
    f->last_event_slot = m->slot;
    f->event_fds += n_fds;
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

static void on_reply(void *arg, int status, const struct privsep_msg *m, int *fds, size_t n_fds)
{
    struct fixture *f = arg;

    if (status < 0) {
        assert_null(m);
        f->failures++;
        f->last_failure = status;
        return;
    }
    f->replies++;
    for (size_t i = 0; i < n_fds; i++) {
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        close(fds[i]);
        f->fds_received++;
    }
}

static void on_server_ready(uv_poll_t *p, int status, int events)
{
    struct fixture *f = p->data;

    privsep_server_dispatch(f->server);
}

static void start_server(struct fixture *f)
{
    struct privsep_server_events ev = {on_request, on_peer, f};

    assert_int_equal(privsep_server_new(f->path, getuid(), &ev, &f->server), 0);
    uv_poll_init(&f->loop, &f->server_poll, privsep_server_fd(f->server));
    f->server_poll.data = f;
    uv_poll_start(&f->server_poll, UV_READABLE, on_server_ready);
}

static void stop_server(struct fixture *f)
{
    uv_poll_stop(&f->server_poll);
    uv_close((uv_handle_t *)&f->server_poll, NULL);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    privsep_server_free(f->server);
    f->server = NULL;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    log_init("test", LOG_ERROR);
    snprintf(f->dir, sizeof(f->dir), "/tmp/cay-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/sock", f->dir);
    uv_loop_init(&f->loop);
    start_server(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    privsep_client_free(f->client);
    if (f->server)
        stop_server(f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(rmdir(f->dir), 0); /* the socket's path is gone too */
    free(f);
    return 0;
}

static void start_client(struct fixture *f)
{
    struct privsep_client_events ev = {on_up, on_down, on_event, f};

    assert_int_equal(privsep_client_new(&f->loop, f->path, &ev, &f->client), 0);
}

/* Turns the loop until *what has become n; fails after some seconds. */
static void until(struct fixture *f, const int *what, int n)
{
    uint64_t end = uv_hrtime() + 5000000000u;

    while (*what != n && uv_hrtime() < end) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(200);
    }
    assert_int_equal(*what, n);
}

static void start_client_up(struct fixture *f)
{
    start_client(f);
    until(f, &f->ups, 1);
}

static void turn(struct fixture *f, int times)
{
    for (int i = 0; i < times; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(200);
    }
}

static int raw_connect(struct fixture *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static struct privsep_packet hello_packet(void)
{
    struct privsep_packet p = {.msg = {.version = PRIVSEP_VERSION, .op = PRIVSEP_HELLO, .seq = 1}};

    p.msg.u.hello.version = PRIVSEP_VERSION;
    return p;
}

/* HELLO on fd, which has been the want-th request when it returns. */
static void greet(struct fixture *f, int fd, int want)
{
    struct privsep_packet hello = hello_packet();

    assert_int_equal(privsep_packet_send(fd, &hello), 0);
    until(f, &f->requests, want);
}

/* The server must have hung up without handing anything on. */
static void assert_refused(struct fixture *f, int fd, int requests)
{
    struct privsep_packet p;

    until(f, &f->peers_down, f->peers_up);
    assert_int_equal(f->requests, requests);
    while (privsep_packet_recv(fd, &p) > 0)
        ;
    assert_int_equal(recv(fd, &p, sizeof(p), MSG_DONTWAIT), 0);
    close(fd);
}

/* -- tests ------------------------------------------------------------------------------------- */

static void requests_are_answered_each_once(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg stat = {.op = PRIVSEP_STAT};

    start_client(f);
    assert_int_equal(privsep_client_send(f->client, &stat, on_reply, f), -ENOTCONN);
    until(f, &f->ups, 1);
    for (int i = 0; i < 1000; i++)
        assert_true(privsep_client_send(f->client, &stat, on_reply, f) > 0);
    assert_int_equal(f->replies, 0); /* never from inside the call */
    until(f, &f->replies, 1000);
    assert_int_equal(f->failures, 0);
}

static void descriptors_arrive_close_on_exec(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_CONNECT, .u.connect.count = PRIVSEP_MAX_FDS};

    start_client_up(f);
    for (int i = 0; i < 200; i++)
        assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
    until(f, &f->replies, 200);
    assert_int_equal(f->fds_received, 200 * PRIVSEP_MAX_FDS);
}

static void answers_may_come_in_any_order(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_CREATE};

    f->silent = true;
    start_client_up(f);
    for (int i = 0; i < 100; i++)
        assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
    until(f, &f->requests, 101);
    for (size_t i = f->n_later; i > 0; i--)
        answer(f, &f->later[i - 1]);
    until(f, &f->replies, 100);
}

static void events_arrive(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_ENDED, .slot = 77};

    start_client_up(f);
    assert_int_equal(privsep_server_send(f->server, 0, &m, NULL, 0), 0);
    until(f, &f->events, 1);
    assert_int_equal(f->last_event_slot, 77);
}

/* Of all events only the one that hands an egress its sockets has descriptors. */
static void an_events_descriptors_arrive(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_EGRESS_OPEN, .slot = 5};
    int fds[PRIVSEP_EGRESS_FDS];

    start_client_up(f);
    for (size_t i = 0; i < PRIVSEP_EGRESS_FDS; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(privsep_server_send(f->server, 0, &m, fds, PRIVSEP_EGRESS_FDS), 0);
    until(f, &f->events, 1);
    assert_int_equal(f->event_fds, PRIVSEP_EGRESS_FDS);
    assert_int_equal(f->downs, 0);
    m.op = PRIVSEP_ENDED;
    fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(privsep_server_send(f->server, 0, &m, fds, 1), 0);
    until(f, &f->downs, 1);
    assert_int_equal(f->events, 1);
}

static void no_more_than_the_maximum_is_under_way(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_STAT};

    f->silent = true;
    start_client_up(f);
    for (int i = 0; i < PRIVSEP_CLIENT_MAX_PENDING; i++)
        assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
    assert_int_equal(privsep_client_send(f->client, &m, on_reply, f), -EBUSY);
    until(f, &f->requests, PRIVSEP_CLIENT_MAX_PENDING + 1);
    for (size_t i = 0; i < f->n_later; i++)
        answer(f, &f->later[i]);
    until(f, &f->replies, PRIVSEP_CLIENT_MAX_PENDING);
    assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
}

static void a_lost_server_ends_requests_and_is_found_again(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_CREATE};

    f->silent = true;
    start_client_up(f);
    assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
    until(f, &f->requests, 2);
    stop_server(f);
    until(f, &f->downs, 1);
    assert_int_equal(f->failures, 1);
    assert_int_equal(f->last_failure, -ECONNRESET);
    assert_false(privsep_client_is_up(f->client));
    assert_int_equal(privsep_client_send(f->client, &m, on_reply, f), -ENOTCONN);
    f->silent = false;
    start_server(f);
    until(f, &f->ups, 2);
    assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
    until(f, &f->replies, 1);
}

/* A privd that is stopped accepts by its listener alone. */
static void a_hello_without_an_answer_is_said_again(void **state)
{
    struct fixture *f = *state;

    f->ignored = 1;
    start_client_up(f);
    assert_int_equal(f->peers_up, 2);
    privsep_client_restart(f->client);
    until(f, &f->ups, 2);
    assert_int_equal(f->downs, 1);
}

static void freeing_ends_what_is_under_way(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_CREATE};

    f->silent = true;
    start_client_up(f);
    assert_true(privsep_client_send(f->client, &m, on_reply, f) > 0);
    privsep_client_free(f->client);
    f->client = NULL;
    assert_int_equal(f->last_failure, -ECANCELED);
}

static void a_new_connection_replaces_the_old(void **state)
{
    struct fixture *f = *state;
    struct privsep_packet p;
    int first = raw_connect(f), second;

    greet(f, first, 1);
    second = raw_connect(f);
    greet(f, second, 2);
    assert_int_equal(privsep_packet_recv(first, &p), 1);
    assert_int_equal(privsep_packet_recv(first, &p), 0);
    assert_int_equal(privsep_packet_recv(second, &p), 1);
    assert_int_equal(f->peers_down, 1);
    close(first);
    close(second);
}

/* As a task of privd has copies of all descriptors: a peer that has gone is not in the epoll set any more, or the loop would
 * turn without an end for as long as the task lives. */
static void a_peer_that_has_gone_is_not_watched(void **state)
{
    struct fixture *f = *state;
    struct pollfd watched = {.events = POLLIN};
    int first = raw_connect(f);
    pid_t task;

    greet(f, first, 1);
    task = fork();
    assert_true(task >= 0);
    if (task == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(first);
        for (;;)
            pause();
    }
    close(first);
    until(f, &f->peers_down, 1);
    watched.fd = privsep_server_fd(f->server);
    assert_int_equal(poll(&watched, 1, 0), 0);
    assert_int_equal(kill(task, SIGKILL), 0);
    assert_int_equal(waitpid(task, NULL, 0), task);
}

static void replies_to_an_earlier_peer_are_dropped(void **state)
{
    struct fixture *f = *state;
    struct privsep_packet p;
    struct privsep_msg m = {.op = PRIVSEP_CREATE, .seq = 5};
    int first = raw_connect(f), second;
    uint64_t was;

    greet(f, first, 1);
    was = privsep_server_peer(f->server);
    second = raw_connect(f);
    greet(f, second, 2);
    assert_int_equal(privsep_server_send(f->server, was, &m, NULL, 0), -ENOTCONN);
    assert_int_equal(privsep_packet_recv(second, &p), 1);
    assert_int_equal(p.msg.op, PRIVSEP_HELLO);
    assert_int_equal(privsep_packet_recv(second, &p), -EAGAIN);
    close(first);
    close(second);
}

static void a_wrong_packet_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    struct {
        struct privsep_packet p;
        size_t n;
    } cases[8];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cases[i].p = hello_packet();
        cases[i].n = sizeof(struct privsep_msg);
    }
    cases[0].n = sizeof(struct privsep_msg) - 1;
    cases[1].n = 1;
    cases[2].n = sizeof(struct privsep_msg) + 8;
    cases[3].p.msg.version = PRIVSEP_VERSION + 1;
    cases[4].p.msg.op = PRIVSEP_STAT; /* before HELLO */
    cases[5].p.msg.seq = 0;
    cases[6].p.msg.op = PRIVSEP_ENDED;
    cases[7].p.msg.fds = 1; /* announced but not there */
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int fd = raw_connect(f);

        assert_int_equal(send(fd, &cases[i].p.msg, cases[i].n, 0), cases[i].n);
        until(f, &f->peers_up, (int)i + 1);
        assert_refused(f, fd, 0);
    }
}

static void a_second_hello_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    struct privsep_packet hello = hello_packet();
    int fd = raw_connect(f);

    greet(f, fd, 1);
    assert_int_equal(privsep_packet_send(fd, &hello), 0);
    assert_refused(f, fd, 1);
}

/* Where the kernel can (Linux 6.16), a descriptor cannot be sent to privd at all. Elsewhere it is closed
 * there: the pipe's reader sees its end. */
static void a_descriptor_to_privd_gets_nowhere(void **state)
{
    struct fixture *f = *state;
    struct privsep_packet hello = hello_packet();
    int fd = raw_connect(f), pipe_fds[2], r;
    char byte;

    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
    hello.fds[0] = pipe_fds[1];
    hello.n_fds = 1;
    until(f, &f->peers_up, 1);
    r = privsep_packet_send(fd, &hello);
    close(pipe_fds[1]);
    if (r == -EPERM) {
        assert_int_equal(f->requests, 0);
        close(fd);
    } else {
        assert_int_equal(r, 0);
        assert_refused(f, fd, 0);
    }
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0);
    close(pipe_fds[0]);
}

/* As privd's end would get it from an older kernel. */
static void a_request_with_a_descriptor_is_none(void **state)
{
    struct privsep_packet sent = hello_packet(), got;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    sent.fds[0] = pair[0];
    sent.n_fds = 1;
    assert_int_equal(privsep_packet_send(pair[0], &sent), 0);
    assert_int_equal(privsep_packet_recv(pair[1], &got), 1);
    assert_int_equal(got.n_fds, 1);
    assert_false(privsep_request_is_sound(&got.msg, sizeof(got.msg), got.n_fds));
    assert_true(privsep_request_is_sound(&got.msg, sizeof(got.msg), 0));
    privsep_packet_close(&got);
    close(pair[0]);
    close(pair[1]);
}

static void a_peer_that_does_not_read_is_hung_up(void **state)
{
    struct fixture *f = *state;
    struct privsep_msg m = {.op = PRIVSEP_ITEM};
    int fd = raw_connect(f), r = 0, sent = 0;

    greet(f, fd, 1);
    while (r == 0 && sent++ < PRIVSEP_SERVER_MAX_QUEUE * 2)
        r = privsep_server_send(f->server, 0, &m, NULL, 0);
    assert_int_equal(r, -ENOBUFS);
    assert_true(sent > PRIVSEP_SERVER_MAX_QUEUE / 2);
    assert_int_equal(f->peers_down, 1);
    close(fd);
}

/* Requests stop being read while replies wait, and go on when they are read. */
static void a_slow_peer_is_not_read_from(void **state)
{
    struct fixture *f = *state;
    struct privsep_packet p = hello_packet();
    int fd = raw_connect(f), sent = 1, before, got = 0;

    assert_int_equal(privsep_packet_send(fd, &p), 0);
    p.msg.op = PRIVSEP_STAT;
    for (int round = 0; round < 300; round++) {
        while (sent < 5000 && privsep_packet_send(fd, &p) == 0)
            sent++;
        turn(f, 1);
    }
    before = f->requests;
    assert_true(before < sent);
    for (int round = 0; round < 20000 && got < sent; round++) {
        while (privsep_packet_recv(fd, &p) == 1)
            got++;
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(got, sent);
    assert_int_equal(f->peers_down, 0);
    close(fd);
}

static void another_user_cannot_connect(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    int status;
    pid_t pid;

    NEEDS_ROOT;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(chmod(f->path, 0666), 0); /* so that only SO_PEERCRED is left to refuse */
    pid = fork();
    if (pid == 0) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        char byte;

        snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
        if (setresuid(65534, 65534, 65534) < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
            _exit(1);
        _exit(recv(fd, &byte, 1, 0) <= 0 ? 0 : 2); /* hung up */
    }
    for (int i = 0; i < 5000 && waitpid(pid, &status, WNOHANG) == 0; i++)
        turn(f, 1);
    assert_int_equal(status, 0);
    assert_int_equal(f->peers_up, 0);
}

static void names_are_known(void **state)
{
    assert_string_equal(privsep_op_name(PRIVSEP_CREATE), "create");
    assert_string_equal(privsep_op_name(63), "unknown");
    for (uint32_t i = 0; i < PRIVSEP_STAGE_COUNT; i++)
        assert_non_null(privsep_stage_name(i));
    assert_string_equal(privsep_stage_name(PRIVSEP_STAGE_MOUNTS), "mounts");
    assert_string_equal(privsep_stage_name(PRIVSEP_STAGE_COUNT), "unknown");
}

#define WITH_FIXTURE(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)

/* All that can be freed at a time is less than the workers of one processor's queue, where waiting for each other
 * stops the host: what tenants have, PACE_BURST, and two of each of 32 command sandboxes that are being made. */
static void filters_fit_the_kernel(void **state)
{
    const unsigned other = PACE_BURST + 2 * 32;

    assert_int_equal(privsep_filters_sandboxes_of(5, 19), PRIVSEP_FILTERS_SANDBOXES);
    assert_int_equal(privsep_filters_sandboxes_of(6, 8), PRIVSEP_FILTERS_SANDBOXES);
    assert_in_range(privsep_filters_sandboxes_of(6, 9) * PRIVSEP_FILTERS + other, 1, 255);
    assert_in_range(privsep_filters_sandboxes_of(6, 14) * PRIVSEP_FILTERS + other, 1, 255);
    assert_in_range(privsep_filters_sandboxes_of(6, 15) * PRIVSEP_FILTERS + other, 256, 1023);
    assert_in_range(privsep_filters_sandboxes_of(7, 0) * PRIVSEP_FILTERS + other, 256, 1023);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(requests_are_answered_each_once),
        WITH_FIXTURE(descriptors_arrive_close_on_exec),
        WITH_FIXTURE(answers_may_come_in_any_order),
        WITH_FIXTURE(events_arrive),
        WITH_FIXTURE(an_events_descriptors_arrive),
        WITH_FIXTURE(no_more_than_the_maximum_is_under_way),
        WITH_FIXTURE(a_lost_server_ends_requests_and_is_found_again),
        WITH_FIXTURE(a_hello_without_an_answer_is_said_again),
        WITH_FIXTURE(freeing_ends_what_is_under_way),
        WITH_FIXTURE(a_new_connection_replaces_the_old),
        WITH_FIXTURE(a_peer_that_has_gone_is_not_watched),
        WITH_FIXTURE(replies_to_an_earlier_peer_are_dropped),
        WITH_FIXTURE(a_wrong_packet_ends_the_connection),
        WITH_FIXTURE(a_second_hello_ends_the_connection),
        WITH_FIXTURE(a_descriptor_to_privd_gets_nowhere),
        cmocka_unit_test(a_request_with_a_descriptor_is_none),
        WITH_FIXTURE(a_peer_that_does_not_read_is_hung_up),
        WITH_FIXTURE(a_slow_peer_is_not_read_from),
        WITH_FIXTURE(another_user_cannot_connect),
        cmocka_unit_test(names_are_known),
        cmocka_unit_test(filters_fit_the_kernel),
    };

    return cmocka_run_group_tests_name("privsep", tests, NULL, NULL);
}
