/* That the driver table suffices: privd's own code, linked without the runtime, makes, uses, lists, recovers
 * and ends sandboxes of two levels that only this file knows. An act of privd on a sandbox past its
 * row would not link here. */
#include "failing_malloc.h"
#include "skip.h"
#include "stuck.h"

#include "base/log.h"
#include "contract/meta.h"
#include "privd/command_sandbox.h"
#include "privd/leave.h"
#include "privd/levels.h"
#include "privd/locks.h"
#include "privd/locks_limit.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/records.h"
#include "privd/recover.h"
#include "privd/request.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/unkilled.h"
#include "privsep/packet.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define SLOTS 6u

/* -- a level ----------------------------------------------------------------------------------- */

/* A sandbox is an eventfd, which is readable once it has ended; a task has always ended. */
static struct dummy {
    int boot_far[SLOTS]; /* the agent's end of a boot socket */
    int freezes, thaws, resumes, starts, claims, sockets, stats, kills, reaps, ends,
        command_sandboxes, command_sandbox_kills, adopts, resizes, backs, listings, signals,
        notices, copies, settles, files;
} dummy, other; /* other: calls through the second row */

static int files_failure;   /* how giving kept files to a member ends */
static uint32_t files_kept; /* the number that it was asked for last */

static int stuck_thaws; /* that many fail */

static const char
    *stuck_path; /* not NULL: a start is a real task that looks it up, and hangs there */

static int done_task(struct task *out)
{
    *out = TASK_NONE;
    out->pidfd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return 0;
}

static int collect(struct task *t)
{
    util_close(&t->pidfd);
    *t = TASK_NONE;
    return 0;
}

static int start(uint32_t slot, struct task *out, int *boot_fd)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    util_close(&dummy.boot_far[slot]);
    dummy.boot_far[slot] = pair[1];
    *boot_fd = pair[0];
    return done_task(out);
}

static int look_up(void *arg, struct task_result *out)
{
    struct stat st;

    return stat(arg, &st) < 0 ? -errno : 0;
}

static int dummy_probe(struct runtime *rt, char *why, size_t n)
{
    return 0;
}

static int dummy_slot_begin(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out)
{
    return done_task(out);
}

static int dummy_slot_finish(struct runtime *rt, struct task *t, struct runtime_slot *out,
                             uint32_t *stage)
{
    return collect(t);
}

static void dummy_slot_close(struct runtime_slot *s)
{
}

static int dummy_start_begin(struct runtime *rt, const struct runtime_slot *slot,
                             const struct runtime_start *st, struct task *out, int *boot_fd)
{
    dummy.starts++;
    return start(slot->number, out, boot_fd);
}

static int dummy_start_finish(struct runtime *rt, struct task *t, struct runtime_started *out,
                              uint32_t *stage)
{
    out->pid = getpid();
    out->listener_fd = -1;
    out->pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return collect(t);
}

static int dummy_files_begin(struct runtime *rt, const struct runtime_sandbox *sb, pid_t pid,
                             const struct runtime_start *st, struct task *out)
{
    assert_int_equal(pid, getpid());
    dummy.files++;
    files_kept = st->kept;
    return done_task(out);
}

static int dummy_files_finish(struct runtime *rt, struct task *t, uint32_t *stage)
{
    (void)collect(t);
    *stage = PRIVSEP_STAGE_MOUNTS;
    return files_failure;
}

static int dummy_claim(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,
                       const struct runtime_claim *claim)
{
    dummy.claims++;
    return write(dummy.boot_far[sb->slot], "R", 1) == 1 ? 0 : -EIO;
}

static int dummy_sockets(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds,
                         unsigned n)
{
    dummy.sockets++;
    for (unsigned i = 0; i < n; i++)
        fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return 0;
}

static int dummy_listeners(const struct runtime *rt, const struct runtime_sandbox *sb,
                           int fds[PRIVSEP_EGRESS_FDS])
{
    return -EOPNOTSUPP;
}

static int dummy_stat(const struct runtime *rt, const struct runtime_sandbox *sb,
                      struct runtime_stat *out)
{
    dummy.stats++;
    *out = (struct runtime_stat){.pids_used = 7};
    return 0;
}

static uint64_t resize_used; /* not 0: it uses so much memory, and is refused */
static bool back_fails;

/* The end of the task of a resize, unless it goes back. */
static enum { RESIZE_ENDS, RESIZE_DIES, RESIZE_HANGS } resize_task;

static int hang(void *arg, struct task_result *out)
{
    while (resize_task == RESIZE_HANGS)
        pause();
    _exit(1);
}

static int dummy_resize_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                              const struct privsep_limits *from, const struct privsep_limits *to,
                              bool back, struct task *out)
{
    dummy.backs += back;
    dummy.resizes += !back;
    if (!back && stuck_path)
        return task_spawn(look_up, (char *)(uintptr_t)stuck_path, out);
    return back || resize_task == RESIZE_ENDS ? done_task(out) : task_spawn(hang, NULL, out);
}

static int dummy_resize_finish(struct runtime *rt, struct task *t, struct runtime_resized *out)
{
    struct task_result result;
    int rc = t->pid > 0 ? task_collect(t, &result) : collect(t);

    if (rc == 0 && back_fails && dummy.backs > 0)
        return -ENOTRECOVERABLE;
    if (rc < 0 || resize_used == 0)
        return rc;
    *out = (struct runtime_resized){PRIVSEP_USES_MEMORY, resize_used};
    return -EBUSY;
}

static int dump_answer;

static int dummy_copy_begin(struct runtime *rt, const struct runtime_sandbox *sb, uint32_t number,
                            struct task *out)
{
    dummy.copies++;
    return done_task(out);
}

static int dummy_copy_settle_begin(struct runtime *rt, uint32_t number, uint32_t ahead,
                                   int records_fd, struct task *out)
{
    dummy.settles++;
    return done_task(out);
}

static int dummy_copy_finish(struct task *t)
{
    return collect(t);
}

static int dummy_dump_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                            const struct runtime_image *image, const int *join_fds, int n_join_fds,
                            struct task *out)
{
    return done_task(out);
}

static int dummy_dump_finish(struct runtime *rt, struct task *t, char why[static TASK_WHY_SIZE])
{
    int rc = collect(t);

    snprintf(why, TASK_WHY_SIZE, "%s", "a word of the task's");
    return rc == 0 ? dump_answer : rc;
}

static int dummy_freeze(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    dummy.freezes++;
    return 0;
}

static int dummy_thaw(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    dummy.thaws++;
    if (stuck_thaws > 0) {
        stuck_thaws--;
        return -ENOMEM;
    }
    return 0;
}

static void dummy_notify_resumed(const struct runtime_sandbox *sb)
{
    dummy.resumes++;
}

static bool dummy_is_frozen(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return true;
}

static int dummy_kill(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    dummy.kills++;
    return sb->pidfd < 0 ? 0 : eventfd_write(sb->pidfd, 1);
}

static uint32_t dummy_kill_cost(const struct privsep_limits *limits, uint32_t command_sandboxes)
{
    return 1;
}

static int dummy_pin(const struct runtime_sandbox *sb)
{
    return -EOPNOTSUPP;
}

static int dummy_reap(const struct runtime_sandbox *sb, struct runtime_exit *out)
{
    dummy.reaps++;
    return 0;
}

static bool dummy_was_oom(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return false;
}

static int dummy_end_begin(struct runtime *rt, const struct runtime_end *ends, unsigned n,
                           struct task *out)
{
    dummy.ends += (int)n;
    return done_task(out);
}

static int dummy_end_finish(struct runtime *rt, struct task *t, struct runtime_end *ends,
                            unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        ends[i].status = 0;
    return collect(t);
}

static int dummy_command_sandbox_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                                       uint32_t open_files, struct task *out, int *boot_fd)
{
    dummy.command_sandboxes++;
    return start(sb->slot, out, boot_fd);
}

static int dummy_command_sandbox_kill(const struct runtime_sandbox *inner)
{
    dummy.command_sandbox_kills++;
    return eventfd_write(inner->pidfd, 1);
}

static uint32_t dummy_command_sandboxes_kill(const struct runtime *rt, uint32_t slot)
{
    return 0;
}

static void dummy_command_sandboxes_kill_unfinished(const struct runtime *rt, uint32_t slot)
{
}

static int dummy_living(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    return 1;
}

static pid_t program; /* of every sandbox; 0: they have none */

static int dummy_program_pids(const struct runtime *rt, uint32_t slot, pid_t *pids, int max)
{
    dummy.listings++;
    pids[0] = program;
    return program != 0;
}

static int dummy_program_signal(const struct runtime *rt, uint32_t slot, pid_t pid, int signal)
{
    dummy.signals++;
    return program > 0 && pid == program ? kill(pid, signal) : -ESRCH;
}

static void dummy_notify_locks(const struct runtime *rt, uint32_t slot)
{
    dummy.notices++;
}

static int dummy_adopt(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)
{
    dummy.adopts++;
    *pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return pid == getpid() ? 0 : -ESRCH;
}

/* -- a second one: the same, counted apart where a row could be mistaken ------------------------- */

static int other_start_begin(struct runtime *rt, const struct runtime_slot *slot,
                             const struct runtime_start *st, struct task *out, int *boot_fd)
{
    int rc;

    other.starts++;
    rc = start(slot->number, out, boot_fd);
    if (rc < 0 || !stuck_path)
        return rc;
    (void)collect(out);
    return task_spawn(look_up, (char *)(uintptr_t)stuck_path, out);
}

static int other_claim(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,
                       const struct runtime_claim *claim)
{
    other.claims++;
    return write(dummy.boot_far[sb->slot], "R", 1) == 1 ? 0 : -EIO;
}

static int other_sockets(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds,
                         unsigned n)
{
    other.sockets++;
    dummy.sockets--;
    return dummy_sockets(rt, sb, fds, n);
}

static int other_stat(const struct runtime *rt, const struct runtime_sandbox *sb,
                      struct runtime_stat *out)
{
    other.stats++;
    *out = (struct runtime_stat){.pids_used = 9};
    return 0;
}

static int other_freeze(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    other.freezes++;
    return 0;
}

static int other_thaw(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    other.thaws++;
    return 0;
}

static int other_kill(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    other.kills++;
    return sb->pidfd < 0 ? 0 : eventfd_write(sb->pidfd, 1);
}

static int other_reap(const struct runtime_sandbox *sb, struct runtime_exit *out)
{
    other.reaps++;
    return 0;
}

static int other_end_begin(struct runtime *rt, const struct runtime_end *ends, unsigned n,
                           struct task *out)
{
    other.ends += (int)n;
    return done_task(out);
}

static int other_command_sandbox_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                                       uint32_t open_files, struct task *out, int *boot_fd)
{
    other.command_sandboxes++;
    return start(sb->slot, out, boot_fd);
}

static int other_copy_begin(struct runtime *rt, const struct runtime_sandbox *sb, uint32_t number,
                            struct task *out)
{
    other.copies++;
    return done_task(out);
}

static int other_copy_settle_begin(struct runtime *rt, uint32_t number, uint32_t ahead,
                                   int records_fd, struct task *out)
{
    other.settles++;
    return done_task(out);
}

static int other_command_sandbox_kill(const struct runtime_sandbox *inner)
{
    other.command_sandbox_kills++;
    return eventfd_write(inner->pidfd, 1);
}

static int other_program_pids(const struct runtime *rt, uint32_t slot, pid_t *pids, int max)
{
    other.listings++;
    dummy.listings--;
    return dummy_program_pids(rt, slot, pids, max);
}

static int other_program_signal(const struct runtime *rt, uint32_t slot, pid_t pid, int signal)
{
    other.signals++;
    dummy.signals--;
    return dummy_program_signal(rt, slot, pid, signal);
}

static void other_notify_locks(const struct runtime *rt, uint32_t slot)
{
    other.notices++;
}

static int other_adopt(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)
{
    other.adopts++;
    *pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return pid == getpid() ? 0 : -ESRCH;
}

static int no_vm(struct runtime *rt, char *why, size_t n)
{
    snprintf(why, n, "this test has no level vm");
    return -EOPNOTSUPP;
}

/* The functions of a row that p and q share are q's. */
#define ROW(p, q)                                                                               \
    {                                                                                           \
        .name = #p, .probe = q##_probe, .slot_begin = q##_slot_begin,                           \
        .slot_finish = q##_slot_finish, .slot_close = q##_slot_close,                           \
        .start_begin = p##_start_begin, .start_finish = q##_start_finish,                       \
        .files_begin = q##_files_begin, .files_finish = q##_files_finish, .claim = p##_claim,   \
        .sockets = p##_sockets, .listeners = q##_listeners, .stat = p##_stat,                   \
        .resize_begin = q##_resize_begin, .resize_finish = q##_resize_finish,                   \
        .dump_begin = q##_dump_begin, .dump_finish = q##_dump_finish,                           \
        .notify_resumed = q##_notify_resumed, .freeze = p##_freeze, .is_frozen = q##_is_frozen, \
        .thaw = p##_thaw, .kill = p##_kill, .kill_cost = q##_kill_cost, .pin = q##_pin,         \
        .reap = p##_reap, .was_oom = q##_was_oom, .copy_begin = p##_copy_begin,                 \
        .copy_settle_begin = p##_copy_settle_begin, .copy_finish = q##_copy_finish,             \
        .end_begin = p##_end_begin, .end_finish = q##_end_finish,                               \
        .command_sandbox_begin = p##_command_sandbox_begin,                                     \
        .command_sandbox_finish = q##_start_finish,                                             \
        .command_sandbox_kill = p##_command_sandbox_kill,                                       \
        .command_sandboxes_kill = q##_command_sandboxes_kill,                                   \
        .command_sandboxes_kill_unfinished = q##_command_sandboxes_kill_unfinished,             \
        .program_pids = p##_program_pids, .program_signal = p##_program_signal,                 \
        .notify_locks = p##_notify_locks, .adopt = p##_adopt, .living = q##_living              \
    }

static const struct runtime_driver rows[PRIVSEP_LEVEL_COUNT] = {
    [PRIVSEP_LEVEL_PROCESS] = ROW(dummy, dummy),
    [PRIVSEP_LEVEL_GVISOR] = ROW(other, dummy),
    [PRIVSEP_LEVEL_VM] = {.name = "vm", .probe = no_vm},
};

const struct runtime_driver *runtime_driver(uint32_t level)
{
    if (level >= ARRAY_SIZE(rows))
        return NULL;
    if (!rows[level].name)
        fail_msg("level %u (%s) has no row in this test", level, privsep_level_name(level));
    return &rows[level];
}

/* -- what privd asks of the host ----------------------------------------------------------------- */

static int templates_fd = -1;

int runtime_templates_fd(const struct runtime *rt)
{
    return templates_fd;
}

static bool can_keep;

bool runtime_can_keep(const struct runtime *rt)
{
    return can_keep;
}

bool runtime_is_kept(const struct runtime *rt, uint32_t number)
{
    return false;
}

bool runtime_has_memory(const struct runtime *rt, uint32_t number)
{
    return false;
}

int runtime_drop(const struct runtime *rt, uint32_t number, uint32_t ahead)
{
    return -EOPNOTSUPP;
}

int runtime_drop_begin(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd,
                       struct task *out)
{
    return -EOPNOTSUPP;
}

int runtime_drop_finish(struct task *t)
{
    return -EOPNOTSUPP;
}

int runtime_archive_begin(struct runtime *rt, uint32_t number, int records_fd, struct task *out)
{
    return -EOPNOTSUPP;
}

int runtime_archive_finish(struct task *t, char why[static TASK_WHY_SIZE])
{
    return -EOPNOTSUPP;
}

int runtime_export_begin(struct runtime *rt, uint32_t template_number,
                         const struct exchange_header *header, struct task *out)
{
    return -EOPNOTSUPP;
}

int runtime_export_finish(struct task *t, int out_fds[static PRIVSEP_EXPORT_FDS],
                          char why[static TASK_WHY_SIZE])
{
    return -EOPNOTSUPP;
}

int runtime_import_begin(struct runtime *rt, uint32_t number, uint32_t template_number,
                         int records_fd, struct task *out)
{
    return -EOPNOTSUPP;
}

int runtime_import_finish(struct task *t, char why[static TASK_WHY_SIZE])
{
    return -EOPNOTSUPP;
}

int runtime_archive_undo(const struct runtime *rt, uint32_t number)
{
    return 0;
}

void runtime_copies_undo_all(struct runtime *rt)
{
}

void runtime_archive_undo_all(struct runtime *rt)
{
}

bool runtime_is_archived(const struct runtime *rt, uint32_t number)
{
    return false;
}

bool runtime_is_away(const struct runtime *rt, uint32_t number)
{
    return false;
}

bool runtime_is_volume(const struct runtime *rt, uint32_t number)
{
    return false;
}

int runtime_volume_make_begin(struct runtime *rt, uint32_t number, uint64_t bytes, int records_fd,
                              struct task *out)
{
    return -EOPNOTSUPP;
}

int runtime_volume_remove_begin(struct runtime *rt, uint32_t number, int records_fd,
                                struct task *out)
{
    return -EOPNOTSUPP;
}

int runtime_volume_finish(struct task *t)
{
    return -EOPNOTSUPP;
}

int runtime_volume_remove(const struct runtime *rt, uint32_t number)
{
    return -EOPNOTSUPP;
}

int runtime_disk_trouble(const struct runtime *rt)
{
    return 0;
}

const char *runtime_disk_name(const struct runtime *rt)
{
    return "none";
}

int runtime_disk_space(const struct runtime *rt, uint64_t *total_bytes, uint64_t *free_bytes)
{
    *total_bytes = *free_bytes = 0;
    return 0;
}

int runtime_scan(const struct runtime *rt, void (*found)(void *arg, const struct runtime_found *f),
                 void *arg)
{
    return 0;
}

/* -- a privd, and its peer ------------------------------------------------------------------------ */

struct world {
    char dir[64], path[96];
    struct privd p;
    struct loop_timer turn;
    int sock;
    uint64_t seq;
};

static void on_server(void *arg, uint32_t events)
{
    privsep_server_dispatch(arg);
}

static void on_turn(void *arg)
{
    loop_stop(arg);
}

/* privd's loop, for some milliseconds. */
static void run_a_while(struct world *w)
{
    loop_arm(&w->p.loop, &w->turn, 3, on_turn, &w->p.loop);
    assert_int_equal(loop_run(&w->p.loop), 0);
}

static uint64_t send_request(struct world *w, struct privsep_msg m)
{
    struct privsep_packet out = {.msg = m};

    out.msg.version = PRIVSEP_VERSION;
    out.msg.seq = ++w->seq;
    assert_int_equal(privsep_packet_send(w->sock, &out), 0);
    return w->seq;
}

/* The next packet; its descriptors are closed, fds tells how many came. */
static struct privsep_msg next_packet(struct world *w)
{
    struct privsep_packet in = {0};
    int rc = -EAGAIN;

    for (int i = 0; i < 1000 && (rc = privsep_packet_recv(w->sock, &in)) == -EAGAIN; i++)
        run_a_while(w);
    assert_int_equal(rc, 1);
    in.msg.fds = (uint16_t)in.n_fds;
    privsep_packet_close(&in);
    return in.msg;
}

/* The answer to one; events that come before it are passed over. */
static struct privsep_msg ask(struct world *w, struct privsep_msg m)
{
    uint64_t seq = send_request(w, m);
    struct privsep_msg got;

    do
        got = next_packet(w);
    while (got.seq != seq);
    return got;
}

static void connect_peer(struct world *w)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct privsep_msg hello = {.op = PRIVSEP_HELLO, .u.hello.version = PRIVSEP_VERSION};

    memcpy(to.sun_path, w->path, sizeof(w->path));
    w->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(w->sock, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(ask(w, hello).status, 0);
}

static void begin(struct world *w)
{
    struct privd *p = &w->p;
    struct privsep_server_events ev = {request_handle, request_peer, p};

    *p = (struct privd){.signal_fd = -1,
                        .loop.epoll_fd = -1,
                        .records.fd = -1,
                        .kept.fd = -1,
                        .dropper = {.task = TASK_NONE, .source = LOOP_SOURCE_NONE},
                        .copier = {.task = TASK_NONE, .source = LOOP_SOURCE_NONE},
                        .archiver = {.task = TASK_NONE, .source = LOOP_SOURCE_NONE},
                        .exchanger = {.task = TASK_NONE, .source = LOOP_SOURCE_NONE},
                        .volume_worker = {.task = TASK_NONE, .source = LOOP_SOURCE_NONE},
                        .server_source = LOOP_SOURCE_NONE,
                        .signal_source = LOOP_SOURCE_NONE,
                        .cleaner = {.task = TASK_NONE, .source = LOOP_SOURCE_NONE}};
    dump_init(p);
    p->options.slots_max = SLOTS;
    p->options.slots_ready = 2;
    p->bounds = (struct permit_bounds){.open_files_max = 1024, .slots_max = SLOTS};
    p->pace.loop = &p->loop;
    assert_int_equal(loop_init(&p->loop), 0);
    assert_int_equal(records_open(&p->records, w->dir, SLOTS), 0);
    assert_int_equal(levels_probe(p), 0);
    assert_int_equal(slots_init(p), 0);
    assert_int_equal(templates_load(p), 0);
    assert_int_equal(recover_run(p), 0);
    assert_int_equal(privsep_server_new(w->path, getuid(), &ev, &p->server), 0);
    assert_int_equal(
        loop_add(&p->loop, &p->server_source, privsep_server_fd(p->server), on_server, p->server),
        0);
    slots_refill(p);
    connect_peer(w);
}

/* As a privd that leaves: sandboxes live on. */
static void leave(struct world *w)
{
    close(w->sock);
    loop_remove(&w->p.loop, &w->p.server_source);
    privsep_server_free(w->p.server);
    command_sandbox_free_all(&w->p);
    unkilled_free(&w->p);
    leave_loop(&w->p);
    slots_free(&w->p);
    levels_free(&w->p);
    records_close(&w->p.records);
    loop_disarm(&w->p.loop, &w->turn);
    loop_free(&w->p.loop);
}

/* With a disk on which files are kept, and their records. */
static void begin_keeping(struct world *w)
{
    begin(w);
    assert_int_equal(kept_open(&w->p.kept, w->dir), 0);
    can_keep = true;
}

static void leave_keeping(struct world *w)
{
    can_keep = false;
    kept_close(&w->p.kept);
    leave(w);
}

static void write_template(const char *dir, uint32_t number)
{
    struct meta meta = {.magic = META_MAGIC, .version = META_VERSION, .number = number};
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%u", dir, number);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%u/" META_FILE, dir, number);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, &meta, sizeof(meta)), sizeof(meta));
    close(fd);
}

static void remove_template(const char *dir, uint32_t number)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%u/" META_FILE, dir, number);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/%u", dir, number);
    (void)rmdir(path);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    dummy = other = (struct dummy){0};
    stuck_thaws = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        dummy.boot_far[i] = -1;
    snprintf(w->dir, sizeof(w->dir), "/tmp/cay-levels-XXXXXX");
    if (!mkdtemp(w->dir))
        return -1;
    snprintf(w->path, sizeof(w->path), "%s/privd.sock", w->dir);
    templates_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    write_template(w->dir, PRIVSEP_TEMPLATE_HOST);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    for (uint32_t i = 0; i < SLOTS; i++)
        util_close(&dummy.boot_far[i]);
    if (geteuid() == 0) {
        w->p.records.fd = -1;
        records_remove(&w->p.records, w->dir);
        (void)unlinkat(templates_fd, "kept", 0);
    }
    (void)unlink(w->path);
    remove_template(w->dir, PRIVSEP_TEMPLATE_HOST);
    util_close(&templates_fd);
    int rc = rmdir(w->dir);
    free(w);
    return rc;
}

/* -- tests -------------------------------------------------------------------------------------- */

static struct privsep_msg create_request(const char *id, uint32_t level)
{
    struct privsep_msg m = {.op = PRIVSEP_CREATE};

    m.u.create.template_number = PRIVSEP_TEMPLATE_HOST;
    m.u.create.level = level;
    m.u.create.limits = (struct privsep_limits){.memory_bytes = 64u << 20,
                                                .disk_bytes = 64u << 20,
                                                .cpu_milli = 1000,
                                                .pids = 64,
                                                .open_files = 256};
    memcpy(m.u.create.id, id, strlen(id));
    return m;
}

static struct privsep_msg create(struct world *w, const char *id, uint32_t level)
{
    return ask(w, create_request(id, level));
}

static struct privsep_msg of(uint16_t op, const struct privsep_msg *created)
{
    return (struct privsep_msg){.op = op, .slot = created->slot, .gen = created->gen};
}

/* A row that lacks a function would be called at the null pointer, which no other test here shows of every one. */
static void rows_are_complete(void **state)
{
    void (*all[sizeof(rows[0]) / sizeof(void (*)(void))])(void);

    for (unsigned level = PRIVSEP_LEVEL_PROCESS; level <= PRIVSEP_LEVEL_GVISOR; level++) {
        memcpy(all, &rows[level], sizeof(all));
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            if (!all[i])
                fail_msg("entry %zu of the row %s is missing", i, rows[level].name);
    }
}

/* Everything that a peer can ask of a sandbox. */
static void use_and_end(struct world *w, const struct privsep_msg *created, uint32_t pids)
{
    struct privsep_msg connect = of(PRIVSEP_CONNECT, created),
                       inner = of(PRIVSEP_COMMAND_SANDBOX, created),
                       inner_end = of(PRIVSEP_COMMAND_SANDBOX_END, created);

    connect.u.connect.count = 3;
    assert_int_equal(ask(w, connect).fds, 3);
    assert_int_equal(ask(w, of(PRIVSEP_STAT, created)).u.stat.pids_used, pids);
    inner = ask(w, inner);
    assert_int_equal(inner.status, 0);
    assert_int_equal(inner.fds, PRIVSEP_COMMAND_SANDBOX_SOCKETS);
    inner_end.u.command_sandbox.number = inner.u.command_sandbox.number;
    assert_int_equal(ask(w, inner_end).status, 0);
    assert_int_equal(ask(w, of(PRIVSEP_FREEZE, created)).status, 0);
    assert_int_equal(ask(w, of(PRIVSEP_THAW, created)).status, 0);
    assert_int_equal(ask(w, of(PRIVSEP_KILL, created)).status, 0);
    for (int i = 0; i < 20; i++) /* its rest is gathered for 10 ms */
        run_a_while(w);
}

static void each_level_goes_through_its_own_row(void **state)
{
    struct world *w = *state;
    struct privsep_msg created;
    struct dummy before;

    NEEDS_ROOT;
    begin(w);
    created = create(w, "second", PRIVSEP_LEVEL_GVISOR);
    assert_int_equal(created.status, 0);
    assert_int_equal(created.fds, PRIVSEP_CREATE_SOCKETS);
    before = dummy; /* pooled slots are of the first level; it may be at work meanwhile */
    use_and_end(w, &created, 9);
    assert_int_equal(before.claims + before.stats + before.command_sandboxes + before.kills, 0);
    assert_int_equal(
        dummy.claims + dummy.stats + dummy.command_sandboxes + dummy.kills + dummy.sockets, 0);
    assert_true(other.starts == 1 && other.claims == 2 && other.sockets == 3 && other.stats == 1);
    assert_true(other.command_sandboxes == 1 && other.command_sandbox_kills == 1 &&
                other.kills == 1);
    assert_true(other.reaps == 2 && other.ends == 1 && other.freezes == 1 && other.thaws == 1);

    created = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    assert_int_equal(created.status, 0);
    use_and_end(w, &created, 7);
    assert_true(dummy.claims == 2 && dummy.sockets == 3 && dummy.stats == 1 &&
                dummy.command_sandboxes == 1);
    assert_true(dummy.command_sandbox_kills == 1 && dummy.kills == 1 && dummy.reaps == 2);
    assert_true(other.claims == 2 && other.kills == 1 && other.ends == 1);
    leave(w);
}

static void a_level_that_is_not_there_is_refused_with_its_reason(void **state)
{
    struct world *w = *state;
    struct privsep_msg m;

    NEEDS_ROOT;
    begin(w);
    m = create(w, "third", PRIVSEP_LEVEL_VM);
    assert_int_equal(m.status, -EOPNOTSUPP);
    assert_int_equal(m.stage, PRIVSEP_STAGE_LEVEL);
    assert_string_equal(m.u.refused.why, "this test has no level vm");
    leave(w);
}

/* A record of files that are kept. */
static void put_record(struct world *w, uint32_t number, uint32_t template_number, uint32_t level)
{
    w->p.kept.all[number] = (struct kept_record){.number = number,
                                                 .state = KEPT_WHOLE,
                                                 .template_number = template_number,
                                                 .level = level,
                                                 .owner = "the owner"};
}

static struct privsep_msg create_on(struct world *w, uint32_t number, uint32_t level)
{
    struct privsep_msg m = create_request("onkept", level);

    m.u.create.kept = number;
    memcpy(m.u.create.owner, "the owner", 9);
    return ask(w, m);
}

static void kept_files_of_another_level_are_refused_with_the_reason(void **state)
{
    static const struct {
        uint32_t of, wanted;
        const char *why; /* NULL: it is not refused for its level */
    } cases[] = {
        {PRIVSEP_LEVEL_VM, PRIVSEP_LEVEL_PROCESS, "this test has no level vm"},
        {PRIVSEP_LEVEL_GVISOR, PRIVSEP_LEVEL_PROCESS,
         "its files are those of a sandbox of the level gvisor"},
        {PRIVSEP_LEVEL_PROCESS, PRIVSEP_LEVEL_GVISOR,
         "its files are those of a sandbox of the level process"},
        {PRIVSEP_LEVEL_COUNT, PRIVSEP_LEVEL_PROCESS,
         "its files are those of a level that this server does not have"},
        {PRIVSEP_LEVEL_PROCESS, PRIVSEP_LEVEL_VM, "this test has no level vm"},
        {PRIVSEP_LEVEL_GVISOR, PRIVSEP_LEVEL_GVISOR, NULL},
    };
    struct world *w = *state;

    NEEDS_ROOT;
    begin(w);
    for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct privsep_msg m;

        put_record(w, i + 1, PRIVSEP_TEMPLATE_HOST, cases[i].of);
        m = create_on(w, i + 1, cases[i].wanted);
        assert_true(m.status < 0); /* there is no file of records here */
        assert_int_equal(m.stage == PRIVSEP_STAGE_LEVEL, cases[i].why != NULL);
        assert_string_equal(m.u.refused.why, cases[i].why ? cases[i].why : "");
    }
    put_record(w, 30, 0, PRIVSEP_LEVEL_PROCESS); /* its record was lost */
    assert_int_not_equal(create_on(w, 30, PRIVSEP_LEVEL_GVISOR).stage, PRIVSEP_STAGE_LEVEL);
    leave(w);
}

static void copies_go_through_the_row_of_the_level(void **state)
{
    struct world *w = *state;
    struct privsep_msg m;
    uint32_t level;

    NEEDS_ROOT;
    begin_keeping(w);
    for (level = PRIVSEP_LEVEL_PROCESS; level <= PRIVSEP_LEVEL_GVISOR; level++) {
        struct privsep_msg created = create(w, level ? "second" : "first", level);

        assert_int_equal(created.status, 0);
        m = of(PRIVSEP_COPY, &created);
        m.u.kept.number = level + 1;
        memcpy(m.u.kept.owner, "the owner", 9);
        assert_int_equal(ask(w, m).status, 0);
        assert_int_equal(w->p.kept.all[level + 1].level, level);
        assert_int_equal(w->p.kept.all[level + 1].state, KEPT_WHOLE);
        assert_true(dummy.copies == 1 && dummy.settles == 1);
        assert_true(other.copies == (int)level && other.settles == (int)level);
    }
    leave_keeping(w);
}

/* The time for it is over at the next try. */
static void give_thaw_up(struct world *w, const struct privsep_msg *created)
{
    struct slot *s = &w->p.slots[created->slot];

    for (int i = 0; i < 1000 && (s->state != SLOT_FREEZING || dummy.thaws == 0); i++)
        run_a_while(w);
    assert_int_equal(s->state, SLOT_FREEZING);
    s->freeze_end_ms = 0;
}

static struct privsep_msg answer_to(struct world *w, uint64_t seq)
{
    struct privsep_msg got;

    do
        got = next_packet(w);
    while (got.seq != seq);
    return got;
}

static void a_thaw_that_fails_is_tried_again(void **state)
{
    struct world *w = *state;
    struct privsep_msg created;
    uint64_t seq;

    NEEDS_ROOT;
    begin(w);
    created = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    assert_int_equal(ask(w, of(PRIVSEP_FREEZE, &created)).status, 0);
    stuck_thaws = 3;
    assert_int_equal(ask(w, of(PRIVSEP_THAW, &created)).status, 0);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_RUNNING);
    assert_int_equal(dummy.thaws, 4);

    /* For good: it is frozen, and said to be. The next THAW may help. */
    assert_int_equal(ask(w, of(PRIVSEP_FREEZE, &created)).status, 0);
    stuck_thaws = INT_MAX;
    seq = send_request(w, of(PRIVSEP_THAW, &created));
    give_thaw_up(w, &created);
    assert_int_equal(answer_to(w, seq).status, -ENOTRECOVERABLE);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_FROZEN);
    stuck_thaws = 0;
    assert_int_equal(ask(w, of(PRIVSEP_THAW, &created)).status, 0);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_RUNNING);
    leave(w);
}

static struct privsep_msg copy_of(const struct privsep_msg *created, uint32_t number)
{
    struct privsep_msg m = of(PRIVSEP_COPY, created);

    m.u.kept.number = number;
    memcpy(m.u.kept.owner, "the owner", 9);
    return m;
}

static void a_copy_is_told_only_when_its_sandbox_goes_on(void **state)
{
    struct world *w = *state;
    struct privsep_msg created;
    uint64_t seq;

    NEEDS_ROOT;
    begin_keeping(w);
    created = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    stuck_thaws = 3;
    assert_int_equal(ask(w, copy_of(&created, 1)).status, 0);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_RUNNING);
    assert_int_equal(w->p.kept.all[1].state, KEPT_WHOLE);

    stuck_thaws = INT_MAX;
    seq = send_request(w, copy_of(&created, 2));
    give_thaw_up(w, &created);
    assert_int_equal(answer_to(w, seq).status, -ENOTRECOVERABLE);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_FROZEN);
    assert_int_equal(w->p.kept.all[2].state, KEPT_NONE);

    /* Its end while that is tried: the copy is whole, and the next has its turn. */
    stuck_thaws = 0;
    assert_int_equal(ask(w, of(PRIVSEP_THAW, &created)).status, 0);
    stuck_thaws = INT_MAX;
    seq = send_request(w, copy_of(&created, 2));
    for (int i = 0; i < 1000 && !w->p.copier.over; i++)
        run_a_while(w);
    assert_true(w->p.copier.over);
    (void)send_request(w, of(PRIVSEP_KILL, &created));
    assert_int_equal(answer_to(w, seq).status, 0);
    stuck_thaws = 0;
    for (int i = 0; i < 20; i++)
        run_a_while(w);
    created = create(w, "second", PRIVSEP_LEVEL_PROCESS);
    assert_int_equal(ask(w, copy_of(&created, 3)).status, 0);
    leave_keeping(w);
}

static void more_than_are_pooled_of_another_level(void **state)
{
    struct world *w = *state;

    NEEDS_ROOT;
    begin(w);
    for (unsigned i = 0; i < SLOTS; i++) {
        char id[8] = {(char)('a' + i)};

        assert_int_equal(create(w, id, PRIVSEP_LEVEL_GVISOR).status, 0);
    }
    assert_int_equal(create(w, "more", PRIVSEP_LEVEL_GVISOR).status, -EAGAIN);
    assert_int_equal(other.claims, SLOTS);
    leave(w);
}

/* The next privd: it is said to be frozen, so that cayd has that tried again. */
static void one_that_cannot_be_told_to_go_on_is_taken_over_frozen(void **state)
{
    struct world *w = *state;
    struct privsep_msg created;

    NEEDS_ROOT;
    begin(w);
    created = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    leave(w);
    stuck_thaws = INT_MAX;
    begin(w);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_FROZEN);
    stuck_thaws = 0;
    assert_int_equal(ask(w, of(PRIVSEP_THAW, &created)).status, 0);
    assert_int_equal(w->p.slots[created.slot].state, SLOT_RUNNING);
    leave(w);
}

/* Of the kind that was asked for once. */
static void await_member(struct world *w)
{
    assert_int_equal(create(w, "asked", w->p.pool_level).status, 0);
    for (int i = 0; i < 1000 && w->p.prestarted.n == 0; i++)
        run_a_while(w);
    assert_true(w->p.prestarted.n > 0);
}

static void kept_files_are_given_to_a_member_before_it_is_claimed(void **state)
{
    struct world *w = *state;
    int starts, claims;

    NEEDS_ROOT;
    begin_keeping(w);
    await_member(w);
    starts = dummy.starts + other.starts;
    claims = dummy.claims + other.claims;
    put_record(w, 1, PRIVSEP_TEMPLATE_HOST, w->p.pool_level);
    assert_int_equal(create_on(w, 1, w->p.pool_level).status, 0);
    assert_true(dummy.files == 1 && files_kept == 1);
    assert_int_equal(dummy.claims + other.claims, claims + 1);
    assert_true(dummy.starts + other.starts <= starts + 1); /* of the next member */
    assert_int_equal(w->p.kept.all[1].state, KEPT_NONE);
    leave_keeping(w);
}

/* It ends, and what it was to take is kept as it was. */
static void a_member_that_cannot_have_its_files_is_not_claimed(void **state)
{
    struct world *w = *state;
    struct privsep_msg m;
    int claims;

    NEEDS_ROOT;
    begin_keeping(w);
    await_member(w);
    claims = dummy.claims + other.claims;
    put_record(w, 1, PRIVSEP_TEMPLATE_HOST, w->p.pool_level);
    files_failure = -ELOOP;
    m = create_on(w, 1, w->p.pool_level);
    files_failure = 0;
    assert_true(m.status == -ELOOP && m.stage == PRIVSEP_STAGE_MOUNTS);
    assert_true(dummy.files == 1 && dummy.claims + other.claims == claims);
    assert_int_equal(w->p.kept.all[1].state, KEPT_WHOLE);
    leave_keeping(w);
}

static void list_and_recovery_know_the_level(void **state)
{
    struct world *w = *state;
    struct privsep_msg first, second, item;
    unsigned seen = 0;

    NEEDS_ROOT;
    begin(w);
    first = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    second = create(w, "second", PRIVSEP_LEVEL_GVISOR);
    leave(w);
    begin(w);
    assert_true(dummy.adopts == 1 && other.adopts == 1);
    assert_ptr_equal(levels_driver_of_slot(&w->p, first.slot), &rows[PRIVSEP_LEVEL_PROCESS]);
    assert_ptr_equal(levels_driver_of_slot(&w->p, second.slot), &rows[PRIVSEP_LEVEL_GVISOR]);
    send_request(w, (struct privsep_msg){.op = PRIVSEP_LIST});
    while ((item = next_packet(w)).op == PRIVSEP_ITEM) {
        bool is_first = strcmp(item.u.item.id, "first") == 0;

        assert_int_equal(item.slot, is_first ? first.slot : second.slot);
        assert_int_equal(item.u.item.level,
                         is_first ? PRIVSEP_LEVEL_PROCESS : PRIVSEP_LEVEL_GVISOR);
        seen++;
    }
    assert_int_equal(seen, 2);
    use_and_end(w, &second, 9);
    assert_int_equal(other.kills, 1);
    leave(w);
}

/* Takes locks on so many ranges, 1,000 of each file (the kernel goes through all of one file's). */
static bool lock_ranges(unsigned n)
{
    int fd = -1;

    for (unsigned i = 0; i < n; i++) {
        struct flock range = {.l_type = F_WRLCK, .l_start = 2 * (i % 1000), .l_len = 1};

        if (i % 1000 == 0)
            fd = memfd_create("locks", 0);
        if (fcntl(fd, F_SETLK, &range) < 0)
            return false;
    }
    return true;
}

/* A process that holds so many locks and waits for a signal. */
static pid_t start_holder(unsigned n)
{
    int ready[2];
    char c;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (lock_ranges(n) && write(ready[1], "R", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void end_holder(pid_t pid)
{
    int status;

    kill(pid, SIGKILL); /* or it was killed already */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void locks_are_limited_through_the_row_of_the_level(void **state)
{
    struct world *w = *state;
    struct privsep_msg first, second;
    struct locks_limit *l;

    NEEDS_ROOT;
    begin(w);
    first = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    second = create(w, "second", PRIVSEP_LEVEL_GVISOR);
    dummy = other = (struct dummy){0};
    assert_int_equal(locks_limit_new(&w->p, &l), 0);
    program = start_holder(10);
    assert_false(locks_limit_check(l, first.slot, LOCKS_STEP, NULL, 0));
    assert_true(dummy.listings > 0 && dummy.signals == 0 && other.listings == 0);
    end_holder(program);

    dummy = (struct dummy){0};
    program = start_holder(LOCKS_MAX + 1);
    assert_true(locks_limit_check(l, second.slot, LOCKS_STEP, NULL, 0));
    assert_true(other.listings > 0 && other.notices == 1);
    assert_int_equal(other.signals, 3); /* it is stopped, killed, and told to go on */
    assert_true(dummy.listings == 0 && dummy.signals == 0 && dummy.notices == 0);
    end_holder(program);
    program = 0;
    locks_limit_free(l);
    leave(w);
}

/* Nothing is done by any row where no sandbox ever was, nor by a number that is no slot's. */
static void locks_of_a_slot_that_was_never_used_are_not_looked_at(void **state)
{
    struct world *w = *state;
    struct locks_limit *l;

    NEEDS_ROOT;
    begin(w);
    assert_int_equal(w->p.slots[SLOTS - 1].state, SLOT_EMPTY);
    dummy = other = (struct dummy){0};
    assert_int_equal(locks_limit_new(&w->p, &l), 0);
    assert_false(locks_limit_check(l, SLOTS - 1, LOCKS_STEP, NULL, 0));
    assert_false(locks_limit_check(l, SLOTS, LOCKS_STEP, NULL, 0));
    assert_true(dummy.listings == 0 && other.listings == 0);
    locks_limit_free(l);
    leave(w);
}

/* The watcher of locks: forked before the slot has a level. read(2) answers EFAULT where memory
 * cannot be written. */
static int seen_by_child(struct world *w, int in, const uint32_t *slot)
{
    bool can_write = read(in, (void *)&w->p.slot_levels[SLOTS - 1], 1) == 1;

    if (!can_write || levels_seal_slots(&w->p) < 0)
        return 2;
    if (read(in, (void *)&w->p.slot_levels[SLOTS - 1], 1) != -1 || errno != EFAULT)
        return 3;
    if (read(in, (void *)(uintptr_t)slot, sizeof(*slot)) != sizeof(*slot))
        return 4;
    return levels_driver_of_slot(&w->p, *slot) == &rows[PRIVSEP_LEVEL_GVISOR] ? 0 : 5;
}

static void a_process_that_was_forked_before_sees_the_level_and_cannot_change_it(void **state)
{
    struct world *w = *state;
    struct privsep_msg created;
    uint32_t slot = 0;
    int to_child[2], status;

    NEEDS_ROOT;
    begin(w);
    assert_int_equal(pipe(to_child), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(seen_by_child(w, to_child[0], &slot));
    assert_int_equal(write(to_child[1], "\0", 1), 1);
    created = create(w, "later", PRIVSEP_LEVEL_GVISOR);
    assert_int_equal(created.status, 0);
    assert_int_equal(write(to_child[1], &created.slot, sizeof(slot)), sizeof(slot));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(to_child[0]);
    close(to_child[1]);
    leave(w);
}

/* Asked by a peer: how many there are, and the greatest number. */
static unsigned list_templates(struct world *w, uint32_t *last)
{
    struct privsep_msg m;
    unsigned n = 0;

    *last = 0;
    send_request(w, (struct privsep_msg){.op = PRIVSEP_TEMPLATES});
    while ((m = next_packet(w)).op == PRIVSEP_TEMPLATE) {
        assert_true(m.u.template.number > *last && m.u.template.ready);
        *last = m.u.template.number;
        n++;
    }
    assert_int_equal(m.op, PRIVSEP_TEMPLATES);
    return n;
}

/* Numbers beyond 64; what a peer asks is answered from memory, which a job's end renews. */
static void templates_are_told_from_a_table(void **state)
{
    struct world *w = *state;
    struct privsep_msg m = create_request("many", PRIVSEP_LEVEL_PROCESS);
    uint32_t last;

    NEEDS_ROOT;
    for (uint32_t n = 65; n < 165; n++)
        write_template(w->dir, n);
    write_template(w->dir, PERMIT_TEMPLATE_MAX);
    begin(w);
    assert_int_equal(list_templates(w, &last), 102);
    assert_int_equal(last, PERMIT_TEMPLATE_MAX);
    m.u.create.template_number = 64;
    assert_int_equal(ask(w, m).status, -ENOENT);
    m.u.create.template_number = PERMIT_TEMPLATE_MAX;
    assert_int_equal(ask(w, m).status, 0);
    m.u.create.template_number = PERMIT_TEMPLATE_MAX + 1;
    assert_int_equal(ask(w, m).status, -EINVAL);
    for (uint32_t n = 65; n < 165; n++)
        remove_template(w->dir, n);
    write_template(w->dir, 64);
    assert_int_equal(list_templates(w, &last), 102); /* nothing was read */
    template_refresh(&w->p, 100);
    assert_int_equal(list_templates(w, &last), 101);
    template_refresh(&w->p, 64);
    assert_int_equal(list_templates(w, &last), 102);
    leave(w);
    remove_template(w->dir, 64);
    remove_template(w->dir, PERMIT_TEMPLATE_MAX);
}

/* The slot whose start is a task. */
static struct slot *starting(struct world *w)
{
    uint32_t i = 0;

    for (int turn = 0; turn < 1000 && w->p.slots[i].task.pid <= 0; turn++) {
        run_a_while(w);
        for (i = 0; i < SLOTS - 1 && w->p.slots[i].task.pid <= 0;)
            i++;
    }
    assert_int_equal(w->p.slots[i].state, SLOT_STARTING);
    return &w->p.slots[i];
}

/* The start of one sandbox hangs where no signal reaches it. Its time is over (the timer is not waited for); others are
 * answered all the same, and what it worked on is left alone until it has ended. */
static void a_task_that_cannot_be_killed_holds_up_no_other(void **state)
{
    struct world *w = *state;
    struct stuck stuck = {0};
    struct privsep_msg created, answered;

    NEEDS_ROOT;
    int rc = stuck_begin(&stuck);
    if (rc == -ENOENT || rc == -ENODEV)
        SKIP("this kernel has no FUSE");
    assert_int_equal(rc, 0);
    begin(w);
    created = create(w, "first", PRIVSEP_LEVEL_PROCESS);
    assert_int_equal(created.status, 0);
    stuck_path = stuck.path;
    uint64_t seq = send_request(w, create_request("hangs", PRIVSEP_LEVEL_GVISOR));
    struct slot *s = starting(w);
    stuck_await(&stuck);
    pid_t pid = s->task.pid;
    s->timer.cb(s->timer.arg);
    stuck_path = NULL;
    assert_true(unkilled_of(&w->p, s->number));
    assert_int_equal(ask(w, of(PRIVSEP_STAT, &created)).status, 0);
    assert_int_equal(create(w, "other", PRIVSEP_LEVEL_PROCESS).status, 0);
    assert_int_equal(s->state, SLOT_ENDING);
    assert_true(unkilled_of(&w->p, s->number));
    assert_int_equal(kill(pid, 0), 0);

    stuck_answer(&stuck);
    do
        answered = next_packet(w);
    while (answered.seq != seq);
    assert_int_equal(answered.status, -ETIMEDOUT);
    assert_false(unkilled_of(&w->p, s->number));
    assert_true(kill(pid, 0) < 0 && errno == ESRCH); /* reaped */
    leave(w);
    stuck_end(&stuck);
}

static void other_limits_are_recorded_once_they_hold(void **state)
{
    struct world *w = *state;
    struct privsep_msg created, m;
    struct record rec;
    int before = dummy.resizes;

    begin(w);
    created = create(w, "grows", PRIVSEP_LEVEL_PROCESS);
    m = of(PRIVSEP_RESIZE, &created);
    m.u.resize.memory_bytes = 100 << 20;
    m.u.resize.disk_bytes = 200 << 20;
    m.u.resize.cpu_milli = 300;
    resize_used = 123;
    struct privsep_msg refused = ask(w, m);
    assert_int_equal(refused.status, -EBUSY);
    assert_int_equal(refused.u.resize.uses, PRIVSEP_USES_MEMORY);
    assert_int_equal(refused.u.resize.used_bytes, 123);
    assert_int_equal(records_read(&w->p.records, created.slot, &rec), 0);
    assert_int_not_equal(rec.limits.memory_bytes, 100 << 20);
    resize_used = 0;
    assert_int_equal(ask(w, m).status, 0);
    assert_int_equal(records_read(&w->p.records, created.slot, &rec), 0);
    assert_int_equal(rec.limits.memory_bytes, 100 << 20);
    assert_int_equal(rec.limits.disk_bytes, 200 << 20);
    assert_int_equal(rec.limits.cpu_milli, 300);
    assert_int_not_equal(rec.limits.pids, 0); /* the others stay */
    assert_int_equal(dummy.resizes, before + 2);
    assert_int_equal(w->p.n_resizing, 0);
    m.gen++;
    assert_int_equal(ask(w, m).status, -ESTALE);
    leave(w);
}

static struct privsep_msg resize_of(const struct privsep_msg *created)
{
    struct privsep_msg m = of(PRIVSEP_RESIZE, created);

    m.u.resize.memory_bytes = 100 << 20;
    m.u.resize.disk_bytes = UINT64_C(1) << 40;
    m.u.resize.cpu_milli = 300;
    return m;
}

static struct privsep_limits recorded(struct world *w, uint32_t slot)
{
    struct record rec;

    assert_int_equal(records_read(&w->p.records, slot, &rec), 0);
    return rec.limits;
}

/* A request whose task is under way. */
static uint64_t begin_resize(struct world *w, const struct privsep_msg *created)
{
    uint64_t seq = send_request(w, resize_of(created));

    for (int turn = 0; turn < 1000 && w->p.n_resizing == 0; turn++)
        run_a_while(w);
    assert_int_equal(w->p.n_resizing, 1);
    assert_true(w->p.slots[created->slot].resize.task.pid > 0);
    return seq;
}

/* The task dies in the middle, as for want of memory: those of before are set again, then it is answered. */
static void a_resize_that_is_cut_off_goes_back(void **state)
{
    struct world *w = *state;
    struct privsep_msg created, m;
    struct privsep_limits was;

    begin(w);
    created = create(w, "dies", PRIVSEP_LEVEL_PROCESS);
    was = recorded(w, created.slot);
    resize_task = RESIZE_DIES;
    m = ask(w, resize_of(&created));
    assert_int_equal(m.status, -ECHILD);
    assert_int_equal(dummy.backs, 1);
    assert_int_equal(m.u.resize.memory_bytes, was.memory_bytes);
    assert_int_equal(recorded(w, created.slot).memory_bytes, was.memory_bytes);
    assert_int_equal(recorded(w, created.slot).disk_bytes, was.disk_bytes);
    back_fails = true; /* it is charged for what it may have */
    m = ask(w, resize_of(&created));
    assert_int_equal(m.status, -ECHILD);
    assert_int_equal(m.u.resize.disk_bytes, UINT64_C(1) << 40);
    assert_int_equal(m.u.resize.memory_bytes, MAX(was.memory_bytes, UINT64_C(100) << 20));
    assert_int_equal(recorded(w, created.slot).disk_bytes, UINT64_C(1) << 40);
    assert_int_equal(w->p.n_resizing, 0);
    back_fails = false;
    resize_task = RESIZE_ENDS;
    assert_int_equal(ask(w, resize_of(&created)).status, 0);
    leave(w);
}

/* It takes too long, where no signal reaches it: what it may still do comes before what is set again. */
static void a_resize_goes_back_when_what_was_cut_off_has_ended(void **state)
{
    struct world *w = *state;
    struct stuck stuck = {0};
    struct privsep_msg created, m;

    NEEDS_ROOT;
    int rc = stuck_begin(&stuck);
    if (rc == -ENOENT || rc == -ENODEV)
        SKIP("this kernel has no FUSE");
    assert_int_equal(rc, 0);
    begin(w);
    created = create(w, "hangs", PRIVSEP_LEVEL_PROCESS);
    struct slot *s = &w->p.slots[created.slot];
    stuck_path = stuck.path;
    uint64_t seq = begin_resize(w, &created);
    stuck_await(&stuck);
    stuck_path = NULL;
    s->resize.timer.cb(s->resize.timer.arg);
    assert_true(unkilled_of(&w->p, s->number));
    assert_int_equal(ask(w, resize_of(&created)).status, -EALREADY);
    assert_int_equal(dummy.backs, 0);
    stuck_answer(&stuck);
    m = answer_to(w, seq);
    assert_int_equal(m.status, -ETIMEDOUT);
    assert_int_equal(dummy.backs, 1);
    assert_int_equal(w->p.n_resizing, 0);
    assert_int_not_equal(recorded(w, created.slot).memory_bytes, 100 << 20);
    leave(w);
    stuck_end(&stuck);
}

static void a_kill_ends_a_resize_that_hangs(void **state)
{
    struct world *w = *state;
    struct privsep_msg created;

    begin(w);
    created = create(w, "killed", PRIVSEP_LEVEL_PROCESS);
    resize_task = RESIZE_HANGS;
    uint64_t seq = begin_resize(w, &created);
    pid_t pid = w->p.slots[created.slot].resize.task.pid;
    uint64_t killer = send_request(w, of(PRIVSEP_KILL, &created));
    assert_int_equal(answer_to(w, seq).status, -ESTALE);
    assert_int_equal(answer_to(w, killer).status, 0);
    assert_int_equal(w->p.n_resizing, 0);
    assert_int_equal(dummy.backs, 0);
    assert_true(kill(pid, 0) < 0 && errno == ESRCH);
    assert_int_equal(ask(w, resize_of(&created)).status, -ESTALE);
    resize_task = RESIZE_ENDS;
    created = create(w, "next", PRIVSEP_LEVEL_PROCESS);
    assert_int_equal(ask(w, resize_of(&created)).status, 0);
    leave(w);
}

/* -- memory is out ------------------------------------------------------------------------------ */

#ifdef FAILING_MALLOC

#define ALLOCATIONS_MAX 100u /* a sandbox's life makes fewer */

/* A sandbox of which the n-th allocation fails: it is refused, or lives and ends. */
static bool live_without(struct world *w, size_t n, bool for_good)
{
    struct privsep_msg created, inner;

    failing_malloc_begin(n, for_good);
    created = create(w, "sweep", PRIVSEP_LEVEL_PROCESS);
    if (created.status == 0) {
        inner = ask(w, of(PRIVSEP_COMMAND_SANDBOX, &created));
        assert_true(inner.status == 0 || inner.status == -ENOMEM);
        assert_int_equal(ask(w, of(PRIVSEP_FREEZE, &created)).status, 0);
        assert_int_equal(ask(w, of(PRIVSEP_THAW, &created)).status, 0);
        assert_int_equal(ask(w, of(PRIVSEP_KILL, &created)).status, 0);
    } else {
        assert_int_equal(created.status, -ENOMEM);
    }
    for (int i = 0; i < 20; i++)
        run_a_while(w);
    return failing_malloc_end();
}

static void goes_on(struct world *w)
{
    struct privsep_msg created = create(w, "after", PRIVSEP_LEVEL_PROCESS);

    assert_int_equal(created.status, 0);
    use_and_end(w, &created, 7);
}

/* Each allocation of a create, a claim, a command sandbox, a freeze and a kill, alone or with all after it. */
static void any_allocation_may_fail(void **state)
{
    struct world *w = *state;

    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;
        size_t n;

        for (n = 1; failed && n < ALLOCATIONS_MAX; n++) {
            size_t held = failing_malloc_held();

            begin(w);
            failed = live_without(w, n, for_good);
            goes_on(w);
            leave(w);
            for (uint32_t i = 0; i < SLOTS; i++)
                util_close(&dummy.boot_far[i]);
            assert_int_equal(failing_malloc_held(), held);
        }
        assert_in_range(n, 3, ALLOCATIONS_MAX - 1); /* the control: some failed, and all did */
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef FAILING_MALLOC
        cmocka_unit_test_setup_teardown(any_allocation_may_fail, set_up, tear_down),
#endif
        cmocka_unit_test_setup_teardown(other_limits_are_recorded_once_they_hold, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_resize_that_is_cut_off_goes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resize_goes_back_when_what_was_cut_off_has_ended, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_kill_ends_a_resize_that_hangs, set_up, tear_down),
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test_setup_teardown(each_level_goes_through_its_own_row, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_level_that_is_not_there_is_refused_with_its_reason,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_files_of_another_level_are_refused_with_the_reason,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_go_through_the_row_of_the_level, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_thaw_that_fails_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_is_told_only_when_its_sandbox_goes_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(more_than_are_pooled_of_another_level, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_cannot_be_told_to_go_on_is_taken_over_frozen,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_files_are_given_to_a_member_before_it_is_claimed,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_member_that_cannot_have_its_files_is_not_claimed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(list_and_recovery_know_the_level, set_up, tear_down),
        cmocka_unit_test_setup_teardown(locks_are_limited_through_the_row_of_the_level, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(locks_of_a_slot_that_was_never_used_are_not_looked_at,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_process_that_was_forked_before_sees_the_level_and_cannot_change_it, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(templates_are_told_from_a_table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_task_that_cannot_be_killed_holds_up_no_other, set_up,
                                        tear_down),
    };

#ifdef FAILING_MALLOC
    failing_malloc_init();
#endif
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests_name("privd_levels", tests, NULL, NULL);
}
