/* A hostile cayd: sends privd whatever its channel can carry, and checks that what comes back is what
 * docs/privsep.md allows. `hostile SOCKET SLOTS_MAX SEED COUNT`; run as the user that privd expects.
 *
 * Rounds of one connection each: crafted requests at and beyond the ends of every field, valid ones in
 * between, random bytes, wrong sizes and orders, descriptors, floods without reading a reply, storms of
 * connections. Ends with a line of numbers, or at the first answer that must not be. */
#include "contract/meta.h"
#include "contract/proto.h"
#include "privsep/packet.h"

#include "base/clock.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define WINDOW       64 /* requests under way in a round that reads its replies */
#define KNOWN_MAX    64
#define ASKED_MAX    8192
#define THAW_MS      2000 /* the end of a command sandbox in a frozen sandbox comes when it goes on */
#define REPLY_MS     60000
#define HOST_BUILDS  3
#define HOST_REMOVES 2

enum expect { EXPECT_ANY, EXPECT_REFUSED, EXPECT_STALE };

struct asked {
    uint16_t op;
    uint8_t expect;
    uint8_t count; /* descriptors that a reply may bring */
    uint8_t job;   /* enum privsep_job */
    bool open;
};

struct name {
    uint32_t slot, gen;
};

static struct {
    const char *path;
    uint32_t slots_max;
    uint64_t random, messages, wanted, connections, replies, refused, created, killed, sockets,
        dropped, not_sent;
    unsigned builds, removes;
    bool host_gone; /* its template is, or may be: built again before anything else is */
    uint64_t own_netns;
    struct name known[KNOWN_MAX]; /* sandboxes that were there, ended ones too */
    size_t n_known;
    uint32_t newest[KNOWN_MAX]; /* generation by slot, 0: none was seen */
    int fd;
    uint64_t next_seq;
    struct asked asked[ASKED_MAX]; /* by seq - 1 */
    size_t under_way;
} h = {.fd = -1};

NORETURN PRINTF(1, 2) static void fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "hostile: after %llu messages: ", (unsigned long long)h.messages);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

/* xorshift64*: the seed alone says what is sent. */
static uint64_t rnd(void)
{
    h.random ^= h.random >> 12;
    h.random ^= h.random << 25;
    h.random ^= h.random >> 27;
    return h.random * 0x2545f4914f6cdd1du;
}

static uint64_t below(uint64_t n)
{
    return rnd() % n;
}

static bool once_in(unsigned n)
{
    return below(n) == 0;
}

static void fill(void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)out)[i] = (uint8_t)rnd();
}

/* -- the connection ---------------------------------------------------------------------------- */

static void hang_up(void)
{
    util_close(&h.fd);
    h.under_way = 0;
    h.next_seq = 1;
}

static void dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t end = clock_mono_ms() + REPLY_MS;

    hang_up();
    memcpy(a.sun_path, h.path, strlen(h.path) + 1);
    h.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    while (h.fd >= 0 && connect(h.fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fail("privd does not listen: %s", strerror(errno));
        if (clock_mono_ms() > end)
            fail("privd does not accept");
        usleep(1000);
    }
    h.connections++;
}

/* Whether it was taken: a connection that privd has ended takes nothing. */
static bool put(const void *bytes, size_t n)
{
    ssize_t r = send(h.fd, bytes, n, MSG_NOSIGNAL);

    h.messages++;
    return r == (ssize_t)n;
}

static uint64_t netns_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t n = sizeof(cookie);

    if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &n) < 0)
        fail("no network namespace is known of a socket: %s", strerror(errno));
    return cookie;
}

/* The socket that CONNECT gives: a fresh TCP socket in a namespace that is not the host's. */
static void check_socket(int fd)
{
    int domain = 0, type = 0;
    socklen_t n = sizeof(int);
    struct sockaddr_in peer;
    socklen_t peer_size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0 || domain != AF_INET ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 || type != SOCK_STREAM)
        fail("a descriptor that is no TCP socket");
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0)
        fail("a socket that is connected");
    if (netns_of(fd) == h.own_netns)
        fail("a socket in the host's network namespace");
    h.sockets++;
}

static void remember(uint32_t slot, uint32_t gen)
{
    if (slot >= h.slots_max || gen == 0)
        fail("a sandbox in slot %u, generation %u", slot, gen);
    if (slot < KNOWN_MAX)
        h.newest[slot] = gen;
    h.known[h.n_known < KNOWN_MAX ? h.n_known++ : below(KNOWN_MAX)] = (struct name){slot, gen};
}

static void check_reply(const struct privsep_packet *p)
{
    const struct privsep_msg *m = &p->msg;
    struct asked *a;

    if (m->seq >= h.next_seq || !(a = &h.asked[m->seq - 1])->open)
        fail("a reply to what was not asked: %s, seq %llu, status %d", privsep_op_name(m->op),
             (unsigned long long)m->seq, m->status);
    a->open = false;
    h.under_way--;
    h.replies++;
    if (m->op != a->op)
        fail("%s is answered as %s", privsep_op_name(a->op), privsep_op_name(m->op));
    size_t wanted = m->op == PRIVSEP_CONNECT && m->status == 0 ? a->count : 0;
    if (m->op == PRIVSEP_CREATE && m->status == 0 && p->n_fds != 0)
        wanted = PRIVSEP_CREATE_SOCKETS;
    if (m->op == PRIVSEP_COMMAND_SANDBOX && m->status == 0)
        wanted = PRIVSEP_COMMAND_SANDBOX_SOCKETS;
    if (p->n_fds != wanted)
        fail("%zu descriptors with a reply to %s, status %d", p->n_fds, privsep_op_name(m->op),
             m->status);
    if (a->expect == EXPECT_REFUSED && (m->status == 0 || m->stage != PRIVSEP_STAGE_PERMIT))
        fail("%s out of range is answered %d, stage %u", privsep_op_name(m->op), m->status,
             m->stage);
    if (a->expect == EXPECT_STALE && m->status != -ESTALE)
        fail("%s of no sandbox is answered %d", privsep_op_name(m->op), m->status);
    h.refused += m->status < 0;
    if (m->op == PRIVSEP_CREATE && m->status == 0) {
        h.created++;
        remember(m->slot, m->gen);
    }
    if (a->job == PRIVSEP_JOB_TEMPLATE_BUILD && m->status == 0)
        h.host_gone = false;
    h.killed += m->op == PRIVSEP_KILL && m->status == 0;
}

/* A packet, if one comes in time. False when privd has hung up or none came. */
static bool take(int wait_ms)
{
    struct pollfd ready = {.fd = h.fd, .events = POLLIN};
    struct privsep_packet p;
    int r;

    if (poll(&ready, 1, wait_ms) != 1)
        return false;
    r = privsep_packet_recv(h.fd, &p);
    if (r == -EPROTO)
        fail("a packet that is no message");
    if (r <= 0) {
        hang_up();
        return false;
    }
    if (!privsep_answer_is_sound(&p.msg, sizeof(p.msg), p.n_fds))
        fail("an answer in no sound form");
    for (size_t i = 0; i < p.n_fds; i++)
        check_socket(p.fds[i]);
    if (p.msg.seq != 0)
        check_reply(&p);
    else if (p.msg.op == PRIVSEP_ITEM)
        remember(p.msg.slot, p.msg.gen);
    privsep_packet_close(&p);
    return true;
}

/* The oldest request that waits for its reply. */
static const char *oldest_open(void)
{
    for (uint64_t i = 0; i + 1 < h.next_seq; i++)
        if (h.asked[i].open)
            return privsep_op_name(h.asked[i].op);
    return "none";
}

static void thaw_all(void);

static void drain_to(size_t left)
{
    uint64_t begun = clock_mono_ms(), thaw_at = begun + THAW_MS;

    while (h.fd >= 0 && h.under_way > left) {
        take(1000);
        if (clock_mono_ms() > begun + REPLY_MS)
            fail("no reply to %zu requests, the first: %s", h.under_way, oldest_open());
        if (clock_mono_ms() > thaw_at) {
            thaw_at = clock_mono_ms() + THAW_MS;
            thaw_all();
        }
    }
}

/* -- requests ---------------------------------------------------------------------------------- */

static struct privsep_msg new_request(uint16_t op)
{
    return (struct privsep_msg){.version = PRIVSEP_VERSION, .op = op};
}

static bool ask(struct privsep_msg *m, enum expect expect)
{
    struct asked *a = &h.asked[h.next_seq - 1];

    m->seq = h.next_seq;
    if (!put(m, sizeof(*m)))
        return false;
    *a = (struct asked){.op = m->op, .expect = (uint8_t)expect, .open = true};
    if (m->op == PRIVSEP_CONNECT)
        a->count = (uint8_t)m->u.connect.count;
    if (m->op == PRIVSEP_JOB && expect == EXPECT_ANY)
        a->job = (uint8_t)m->u.job.kind;
    h.next_seq++;
    h.under_way++;
    return true;
}

static void thaw_all(void)
{
    for (uint32_t slot = 0; slot < KNOWN_MAX && h.fd >= 0; slot++) {
        struct privsep_msg m = new_request(PRIVSEP_THAW);

        m.slot = slot;
        m.gen = h.newest[slot];
        if (m.gen != 0 && h.next_seq < ASKED_MAX && !ask(&m, EXPECT_ANY))
            return;
    }
}

static bool greet(void)
{
    struct privsep_msg m = new_request(PRIVSEP_HELLO);

    m.u.hello.version = PRIVSEP_VERSION;
    return ask(&m, EXPECT_ANY);
}

static struct privsep_msg valid_create(void)
{
    struct privsep_msg m = new_request(PRIVSEP_CREATE);

    m.u.create.template_number = PRIVSEP_TEMPLATE_HOST;
    m.u.create.limits = (struct privsep_limits){.memory_bytes = (64 + below(512)) << 20,
                                                .disk_bytes = (8 + below(64)) << 20,
                                                .cpu_milli = 10 + (uint32_t)below(2000),
                                                .pids = 16 + (uint32_t)below(200),
                                                .open_files = 64 + (uint32_t)below(1000)};
    snprintf(m.u.create.id, sizeof(m.u.create.id), "i%u", (unsigned)below(3 * h.slots_max));
    fill(m.u.create.key, sizeof(m.u.create.key));
    return m;
}

/* A field out of its range: never more than refused. */
static struct privsep_msg wrong_create(void)
{
    static const uint64_t memory[] = {0,          1,    (16ull << 20) - 1, (16ull << 40) + 1,
                                      1ull << 63, ~0ull};
    static const uint64_t disk[] = {0, (1ull << 20) - 1, (64ull << 40) + 1, ~0ull};
    static const uint32_t cpu[] = {0, 9, 1024001, ~0u}, pids[] = {0, 7, 4194305, ~0u},
                          files[] = {0, 63, 1u << 31, ~0u},
                          template[] = {0, META_TEMPLATES_MAX + 1, 1u << 31, ~0u};
    struct privsep_msg m = valid_create();

#define ONE_OF(a) (a)[below(ARRAY_SIZE(a))]
    switch (below(16)) {
    case 14: /* a directory of the host beyond the last, or with flags that there are none of */
        m.u.create.volumes[0] = once_in(2)
                                    ? (struct privsep_mount){PRIVSEP_HOST_DIRS_MAX + 1 + below(99),
                                                             PRIVSEP_MOUNT_HOST_DIR}
                                    : (struct privsep_mount){1 + below(8), 4 + below(99)};
        m.u.create.volume_owners[0][0] = 'x';
        break;
    case 13: m.u.create.volumes[below(4)].number = 1 + (uint32_t)below(UINT32_MAX); break;
    case 0: m.u.create.limits.memory_bytes = ONE_OF(memory); break;
    case 1: m.u.create.limits.disk_bytes = ONE_OF(disk); break;
    case 2: m.u.create.limits.cpu_milli = ONE_OF(cpu); break;
    case 3: m.u.create.limits.pids = ONE_OF(pids); break;
    case 4: m.u.create.limits.open_files = ONE_OF(files); break;
    case 5: m.u.create.template_number = ONE_OF(template); break;
    case 6: m.u.create.level = 1 + (uint32_t)below(UINT32_MAX); break;
    case 7: m.u.create.flags = 1u << below(32); break;
    case 8: m.u.create.kept = 1 + (uint32_t)below(UINT32_MAX); break;
    case 9: m.u.create.limits.filters = 1 + below(PRIVSEP_FILTERS - 1); break;
    case 10: m.u.create.id[below(2)] = "/.-_AZ \n\\%\x7f\xff"[below(12)]; break;
    case 11: m.u.create.owner[below(PRIVSEP_OWNER_SIZE)] = 1; break; /* of no number */
    case 12: memset(m.u.create.id, 'a', sizeof(m.u.create.id)); break;
    default: *(once_in(2) ? &m.slot : &m.gen) = 1 + (uint32_t)below(UINT32_MAX); break;
    }
#undef ONE_OF
    return m;
}

/* About a sandbox that is or was there, or never. */
static struct privsep_msg about_sandbox(enum expect *expect)
{
    static const uint16_t ops[] = {
        PRIVSEP_KILL, PRIVSEP_CONNECT,         PRIVSEP_CONNECT,
        PRIVSEP_STAT, PRIVSEP_COMMAND_SANDBOX, PRIVSEP_COMMAND_SANDBOX_END,
        PRIVSEP_THAW, PRIVSEP_FREEZE};
    struct privsep_msg m = new_request(ops[below(ARRAY_SIZE(ops))]);

    *expect = EXPECT_ANY;
    if (m.op == PRIVSEP_COMMAND_SANDBOX)
        fill(m.u.command_sandbox.key, sizeof(m.u.command_sandbox.key));
    else if (m.op == PRIVSEP_COMMAND_SANDBOX_END)
        m.u.command_sandbox.number = 1 + (uint32_t)below(once_in(9) ? UINT32_MAX : 20);
    else
        m.u.connect.count = 1 + (uint32_t)below(PRIVSEP_MAX_FDS);
    if (h.n_known > 0) {
        const struct name *n = &h.known[below(h.n_known)];

        m.slot = n->slot;
        m.gen = n->gen;
    } else {
        m.gen = 1;
        *expect = EXPECT_STALE;
    }
    switch (below(12)) {
    case 0:
        m.gen = (m.gen + (1u << 30)) | 1;
        *expect = EXPECT_STALE;
        break;
    case 1:
        m.gen = UINT32_MAX;
        *expect = EXPECT_STALE;
        break;
    case 2:
        m.gen = 0;
        *expect = EXPECT_REFUSED;
        break;
    case 3:
        m.slot = h.slots_max + (uint32_t)below(5);
        *expect = EXPECT_REFUSED;
        break;
    case 4:
        m.slot = 1u << (10 + below(22));
        *expect = EXPECT_REFUSED;
        break;
    case 5:
        m.op = PRIVSEP_CONNECT;
        m.u.connect.count = once_in(2) ? 0 : PRIVSEP_MAX_FDS + 1 + (uint32_t)below(1000000);
        *expect = EXPECT_REFUSED;
        break;
    case 6:
        m.op = once_in(2) ? PRIVSEP_COMMAND_SANDBOX : PRIVSEP_COMMAND_SANDBOX_END;
        m.u.command_sandbox.number = m.op == PRIVSEP_COMMAND_SANDBOX;
        m.u.command_sandbox.pad = m.op == PRIVSEP_COMMAND_SANDBOX ? 0
                                                                  : 1 + (uint32_t)below(UINT32_MAX);
        *expect = EXPECT_REFUSED;
        break;
    default: break;
    }
    return m;
}

static struct privsep_msg job_for_host(uint32_t kind)
{
    struct privsep_msg m = new_request(PRIVSEP_JOB);

    m.u.job.kind = kind;
    m.u.job.template_number = PRIVSEP_TEMPLATE_HOST;
    h.builds += kind == PRIVSEP_JOB_TEMPLATE_BUILD;
    h.removes += kind == PRIVSEP_JOB_TEMPLATE_REMOVE;
    h.host_gone = h.host_gone || kind == PRIVSEP_JOB_TEMPLATE_REMOVE;
    return m;
}

/* Jobs that end soon only: no build of `base`. */
static struct privsep_msg about_jobs(enum expect *expect)
{
    struct privsep_msg m = new_request(PRIVSEP_JOB);

    *expect = EXPECT_ANY;
    if (h.host_gone || (h.builds < HOST_BUILDS && once_in(200)))
        return job_for_host(PRIVSEP_JOB_TEMPLATE_BUILD);
    if (h.removes < HOST_REMOVES && once_in(200))
        return job_for_host(PRIVSEP_JOB_TEMPLATE_REMOVE);
    *expect = EXPECT_REFUSED;
    m.u.job.kind = (uint32_t)below(6);
    m.u.job.template_number = once_in(2) ? (uint32_t)below(META_TEMPLATES_MAX + 6)
                                         : (uint32_t)rnd();
    if (m.u.job.template_number == PRIVSEP_TEMPLATE_HOST ||
        m.u.job.template_number == PRIVSEP_TEMPLATE_BASE)
        m.u.job.kind = 77;
    /* one of any other number is begun, and fails: root has left no image for it */
    if (m.u.job.kind == PRIVSEP_JOB_TEMPLATE_BUILD && m.u.job.template_number >= 1 &&
        m.u.job.template_number <= META_TEMPLATES_MAX) {
        *expect = EXPECT_ANY;
        m.u.job.kind = once_in(8) ? PRIVSEP_JOB_TEMPLATE_BUILD : 77;
    }
    return m;
}

static bool send_crafted(void)
{
    static const uint16_t plain[] = {PRIVSEP_LIST, PRIVSEP_TEMPLATES, PRIVSEP_CAPACITY};
    enum expect expect = EXPECT_ANY;
    struct privsep_msg m;

    switch (below(20)) {
    case 0: m = valid_create(); break;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
        m = wrong_create();
        expect = EXPECT_REFUSED;
        break;
    case 7: m = about_jobs(&expect); break;
    case 8:
        m = new_request(plain[below(ARRAY_SIZE(plain))]);
        if (once_in(3)) {
            *(once_in(2) ? &m.slot : &m.gen) = 1 + (uint32_t)below(UINT32_MAX);
            expect = EXPECT_REFUSED;
        }
        break;
    case 9:
        /* each there is, also one that is written after this; no slot is so high */
        m = new_request(PRIVSEP_CREATE + (uint16_t)below(PRIVSEP_REQUEST_COUNT - PRIVSEP_CREATE));
        fill(&m.u, sizeof(m.u));
        m.slot = (uint32_t)rnd() | h.slots_max;
        m.gen = (uint32_t)rnd() | 1;
        expect = EXPECT_REFUSED;
        break;
    default: m = about_sandbox(&expect); break;
    }
    return ask(&m, expect);
}

/* -- rounds ------------------------------------------------------------------------------------ */

static void round_crafted(void)
{
    size_t n = 1 + below(2000);

    dial();
    if (!greet())
        return;
    for (size_t i = 0; i < n && h.fd >= 0; i++) {
        if (!send_crafted())
            break;
        if (h.under_way > WINDOW)
            drain_to(below(WINDOW));
    }
    if (!once_in(4))
        drain_to(0);
}

/* Everything that may be sent, nothing read: it stops itself only. */
static void round_flood(void)
{
    size_t n = 1 + below(4000);

    dial();
    (void)fcntl(h.fd, F_SETFL, O_NONBLOCK);
    if (!greet())
        return;
    for (size_t i = 0; i < n; i++) {
        struct privsep_msg m = new_request(once_in(2) ? PRIVSEP_LIST : PRIVSEP_CAPACITY);
        enum expect expect;

        if (once_in(3))
            m = about_sandbox(&expect);
        else if (once_in(8))
            m = valid_create();
        m.seq = i + 2;
        if (!put(&m, sizeof(m))) {
            h.not_sent++;
            if (errno != EAGAIN)
                break;
            usleep(50);
        }
    }
}

/* More creates than there are slots, and gone before any is ready. */
static void round_leave(void)
{
    dial();
    if (!greet())
        return;
    for (size_t i = 0; i < h.slots_max + 4; i++) {
        struct privsep_msg m = valid_create();

        if (!ask(&m, EXPECT_ANY))
            break;
    }
    usleep((useconds_t)below(12000));
}

/* A packet that is no request; privd must hang up. */
static void send_broken(bool greeted)
{
    static const size_t sizes[] = {0, 1, 7, 287, 289, 576, 4096, 60000};
    static uint8_t bytes[65536];
    struct privsep_msg m = valid_create();
    size_t n = sizeof(m);

    m.seq = 7;
    switch (below(7)) {
    case 0: fill(&m, sizeof(m)); break;
    case 1: m.version = (uint32_t)rnd() | 2; break;
    case 2: m.op = (uint16_t)(PRIVSEP_REQUEST_COUNT + below(60000)); break;
    case 3: m.seq = 0; break;
    case 4: m.fds = (uint16_t)(1 + below(1000)); break;
    case 5: m.op = greeted ? PRIVSEP_HELLO : PRIVSEP_LIST; break; /* a second one; or none at all */
    default: n = sizes[below(ARRAY_SIZE(sizes))]; break;
    }
    fill(bytes, n);
    memcpy(bytes, &m, MIN(n, sizeof(m)));
    (void)put(bytes, n);
}

static void expect_hang_up(void)
{
    uint64_t end = clock_mono_ms() + REPLY_MS;

    while (h.fd >= 0) {
        take(100);
        if (clock_mono_ms() > end)
            fail("privd keeps a connection that sent what is no request");
    }
    h.dropped++;
}

static void round_broken(void)
{
    bool greeted = !once_in(4);

    dial();
    if (greeted && !greet())
        return;
    send_broken(greeted);
    expect_hang_up();
}

/* A TCP connection that lingers for a day when it is closed with unsent data. */
static int lingering_socket(void)
{
    struct linger linger = {1, 86400};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    CLEANUP_CLOSE int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char bytes[4096] = {0};

    if (listener < 0 || fd < 0 || bind(listener, (struct sockaddr *)&a, n) < 0 ||
        listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&a, &n) < 0 ||
        connect(fd, (struct sockaddr *)&a, n) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) < 0)
        fail("no socket that lingers: %s", strerror(errno));
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        continue;
    return fd;
}

static void round_descriptors(void)
{
    struct privsep_msg m = new_request(PRIVSEP_HELLO);
    int fds[32], n = 1 + (int)below(ARRAY_SIZE(fds));
    CLEANUP_CLOSE int own = once_in(2) ? lingering_socket() : open("/dev/null", O_RDWR | O_CLOEXEC);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } control = {0};
    struct iovec io = {&m, sizeof(m)};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes};

    m.seq = 1;
    m.u.hello.version = PRIVSEP_VERSION;
    for (int i = 0; i < n; i++)
        fds[i] = own;
    msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    control.align.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
    memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * (size_t)n);
    dial();
    h.messages++;
    if (sendmsg(h.fd, &msg, MSG_NOSIGNAL) < 0)
        h.not_sent++; /* the kernel refuses it for privd */
    else
        expect_hang_up();
}

static void round_storm(void)
{
    size_t n = 1 + below(100);

    for (size_t i = 0; i < n; i++) {
        dial();
        if (once_in(2))
            (void)greet();
        if (once_in(3))
            send_broken(false);
        h.messages++;
    }
}

static const struct {
    void (*run)(void);
    unsigned weight;
} rounds[] = {
    {round_crafted, 40}, {round_flood, 6},       {round_leave, 3},
    {round_broken, 40},  {round_descriptors, 8}, {round_storm, 3},
};

static void run_one(void)
{
    unsigned sum = 0, at;

    for (size_t i = 0; i < ARRAY_SIZE(rounds); i++)
        sum += rounds[i].weight;
    at = (unsigned)below(sum);
    for (size_t i = 0; i < ARRAY_SIZE(rounds); i++) {
        if (at < rounds[i].weight) {
            rounds[i].run();
            return;
        }
        at -= rounds[i].weight;
    }
}

int main(int argc, char **argv)
{
    CLEANUP_CLOSE int own = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (argc != 5 || strlen(argv[1]) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        fprintf(stderr, "usage: hostile SOCKET SLOTS_MAX SEED COUNT\n");
        return 2;
    }
    h.path = argv[1];
    h.slots_max = (uint32_t)strtoul(argv[2], NULL, 10);
    h.random = strtoull(argv[3], NULL, 10) * 2 + 1;
    h.wanted = strtoull(argv[4], NULL, 10);
    h.own_netns = netns_of(own);
    while (h.messages < h.wanted)
        run_one();
    hang_up();
    printf("{\"messages\": %llu, \"connections\": %llu, \"replies\": %llu, \"refused\": %llu, "
           "\"created\": %llu, "
           "\"killed\": %llu, \"sockets\": %llu, \"hung_up\": %llu, \"not_sent\": %llu, "
           "\"builds\": %u}\n",
           (unsigned long long)h.messages, (unsigned long long)h.connections,
           (unsigned long long)h.replies, (unsigned long long)h.refused,
           (unsigned long long)h.created, (unsigned long long)h.killed,
           (unsigned long long)h.sockets, (unsigned long long)h.dropped,
           (unsigned long long)h.not_sent, h.builds);
    return 0;
}
