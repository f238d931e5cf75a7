/* privd's messages: whatever bytes come as a packet, only whole requests get past the form check, and
 * only values in range past the permit table. The input is a run of packets: a length byte (scaled up),
 * a byte that says how many descriptors travel along, the bytes. */
#include "fuzz.h"
#include "privd/permit.h"
#include "privsep/packet.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_SENT_MAX 20 /* more than are allowed */

static const struct permit_bounds bounds = {.open_files_max = 20000, .slots_max = 1024};

static void check_create(const struct privsep_msg *m)
{
    FUZZ_CHECK(memchr(m->u.create.id, '\0', sizeof(m->u.create.id)));
    for (const char *p = m->u.create.id; *p; p++)
        FUZZ_CHECK(strchr("abcdefghijklmnopqrstuvwxyz0123456789", *p));
    FUZZ_CHECK(m->u.create.template_number >= 1 &&
               m->u.create.template_number <= PERMIT_TEMPLATE_MAX);
    FUZZ_CHECK(m->u.create.flags == (PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_LAST) ||
               !(m->u.create.flags & ~PRIVSEP_CREATE_OF_POOL));
    FUZZ_CHECK(m->u.create.level < PRIVSEP_LEVEL_COUNT);
    FUZZ_CHECK(m->u.create.limits.memory_bytes > 0 && m->u.create.limits.pids > 0);
    FUZZ_CHECK(m->u.create.limits.open_files <= bounds.open_files_max);
}

static void evaluate(const struct privsep_msg *m)
{
    if (permit_fields(m, &bounds) < 0)
        return;
    FUZZ_CHECK(m->op >= PRIVSEP_HELLO && m->op < PRIVSEP_REQUEST_COUNT);
    if (m->op == PRIVSEP_CREATE)
        check_create(m);
    if (m->op == PRIVSEP_CONNECT)
        FUZZ_CHECK(m->u.connect.count >= 1 && m->u.connect.count <= PRIVSEP_MAX_FDS);
    if (!permit_needs_sandbox(m->op))
        return;
    FUZZ_CHECK(m->slot < bounds.slots_max && m->gen != 0);
    for (enum slot_state s = SLOT_EMPTY; s < SLOT_STATE_COUNT; s++) {
        FUZZ_CHECK(permit_state(m, s, m->gen + 1) < 0);
        if (s < SLOT_STARTING)
            FUZZ_CHECK(permit_state(m, s, m->gen) < 0);
    }
}

static void send_packet(int fd, const uint8_t *bytes, size_t n, size_t n_fds, int null_fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_SENT_MAX)];
    } control = {0};
    struct iovec io = {(void *)(uintptr_t)bytes, n};
    struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};
    int fds[FDS_SENT_MAX];

    for (size_t i = 0; i < n_fds; i++)
        fds[i] = null_fd;
    if (n_fds > 0) {
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * n_fds);
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
    }
    FUZZ_CHECK(sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n);
}

static void receive(int fd, size_t sent, size_t sent_fds)
{
    struct privsep_packet p = {0};
    int r = privsep_packet_recv(fd, &p);
    bool whole = sent == sizeof(p.msg) && sent_fds <= PRIVSEP_MAX_FDS;

    FUZZ_CHECK((r == 1) == whole);
    if (r != 1) {
        FUZZ_CHECK(p.n_fds == 0);
        return;
    }
    FUZZ_CHECK(p.n_fds == sent_fds);
    if (privsep_request_is_sound(&p.msg, sizeof(p.msg), p.n_fds)) {
        FUZZ_CHECK(p.n_fds == 0 && p.msg.seq != 0);
        evaluate(&p.msg);
    }
    if (privsep_answer_is_sound(&p.msg, sizeof(p.msg), p.n_fds))
        FUZZ_CHECK(p.msg.fds == p.n_fds);
    (void)strlen(privsep_op_name(p.msg.op));
    (void)strlen(privsep_stage_name(p.msg.stage));
    privsep_packet_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int pair[2] = {-1, -1}, null_fd = -1;

    if (null_fd < 0) {
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    for (int i = 0; i < 64 && size > 2; i++) {
        size_t n = data[0] == 0 ? sizeof(struct privsep_msg) : (size_t)data[0] * 2;
        size_t n_fds = data[1] % (FDS_SENT_MAX + 1);

        data += 2;
        size -= 2;
        n = n < size ? n : size;
        if (n == 0)
            break;
        send_packet(pair[0], data, n, n_fds, null_fd);
        receive(pair[1], n, n_fds);
        data += n;
        size -= n;
    }
    return 0;
}
