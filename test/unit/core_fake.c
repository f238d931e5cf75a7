#include "core_fake.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/util.h"
#include "contract/agent_boot.h"
#include "privsep/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define SLOTS  8192u
#define CONNS  256u
#define HELD   4096u
#define BUFFER 16384u

struct slot {
    bool live, frozen, prepared;
    uint32_t gen;
    char id[PRIVSEP_ID_SIZE];
    uint8_t key[PRIVSEP_KEY_SIZE];
    int64_t started_ms;
    uint32_t level;
    struct privsep_limits limits;
};

struct conn {
    int fd;
    size_t len;
    char buf[BUFFER];
};

struct fake {
    pthread_t thread;
    pthread_mutex_t lock;
    int wake, listen_fd;
    unsigned short port;
    bool stop, down;
    char path[100];
    struct privsep_server *server;
    int knobs[FAKE_KNOB_COUNT];
    struct fake_counts counts;
    struct slot *slots;
    bool kept[PRIVSEP_KEPT_MAX + 1], memory[PRIVSEP_KEPT_MAX + 1];
    uint8_t owner[PRIVSEP_KEPT_MAX + 1][PRIVSEP_OWNER_SIZE]; /* all zero: not known */
    bool volume[PRIVSEP_VOLUMES_MAX + 1];
    uint8_t volume_owner[PRIVSEP_VOLUMES_MAX + 1][PRIVSEP_OWNER_SIZE];
    struct privsep_mount mounts[PRIVSEP_CREATE_VOLUMES]; /* of the last CREATE */
    char host_dir[PRIVSEP_OWNER_SIZE];
    struct privsep_msg *held; /* requests that wait for a knob */
    size_t held_n;
    bool archive_stopped;
    uint64_t job_seq, cpu_us;
    char init_body[BUFFER];
    struct conn *conns;
    uint32_t last_command_sandbox;
    uint8_t command_sandbox_key[PRIVSEP_KEY_SIZE]; /* of the last one */
};

/* -- privd ------------------------------------------------------------------------------------- */

static void reply(struct fake *f, struct privsep_msg *m, int status)
{
    m->status = status;
    privsep_server_send(f->server, 0, m, NULL, 0);
}

static struct slot *slot_of(struct fake *f, const struct privsep_msg *m)
{
    struct slot *s = m->slot < SLOTS ? &f->slots[m->slot] : NULL;

    return s && s->live && s->gen == m->gen ? s : NULL;
}

static struct slot *claim(struct fake *f, uint32_t *number)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (f->slots[i].live)
            continue;
        f->slots[i].live = true;
        f->slots[i].frozen = f->slots[i].prepared = false;
        f->slots[i].gen++;
        f->slots[i].started_ms = clock_real_ms();
        f->counts.live++;
        *number = i;
        return &f->slots[i];
    }
    return NULL;
}

static bool is_of(const struct fake *f, uint32_t number, const uint8_t *owner)
{
    static const uint8_t unknown[PRIVSEP_OWNER_SIZE];

    return memcmp(f->owner[number], unknown, sizeof(unknown)) == 0 ||
           memcmp(f->owner[number], owner, sizeof(unknown)) == 0;
}

/* A start from memory. true: it is refused. */
static bool fails_restore(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .stage = PRIVSEP_STAGE_MEMORY};

    if (!(m->u.create.flags & PRIVSEP_CREATE_MEMORY))
        return false;
    if (f->knobs[FAKE_LOSE_RESUMES] > 0 && !(m->u.create.flags & PRIVSEP_CREATE_COPY)) {
        f->knobs[FAKE_LOSE_RESUMES]--;
        f->memory[m->u.create.kept] = false;
        reply(f, &r, -f->knobs[FAKE_MEMORY_ERRNO]);
        return true;
    }
    if (f->knobs[FAKE_FAIL_RESTORES] > 0) {
        f->knobs[FAKE_FAIL_RESTORES]--;
        if (f->knobs[FAKE_MEMORY_ERRNO] == EBUSY) /* a copy is being made of its files */
            r.stage = PRIVSEP_STAGE_LAYER;
        reply(f, &r, -f->knobs[FAKE_MEMORY_ERRNO]);
        return true;
    }
    if (!f->memory[m->u.create.kept]) {
        reply(f, &r, -ENOENT);
        return true;
    }
    f->counts.restores++;
    return false;
}

static void do_create(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    struct slot *s;

    if (f->knobs[FAKE_FAIL_CREATES] > 0) {
        f->knobs[FAKE_FAIL_CREATES]--;
        r.stage = PRIVSEP_STAGE_LAYER;
        reply(f, &r, -ENOSPC);
        return;
    }
    if (f->knobs[FAKE_LATE_CREATES] > 0) {
        f->knobs[FAKE_LATE_CREATES]--;
        r.stage = PRIVSEP_STAGE_SLOT;
        reply(f, &r, -ETIMEDOUT);
        return;
    }
    if (m->u.create.kept && !f->kept[m->u.create.kept]) {
        r.stage = PRIVSEP_STAGE_LAYER;
        reply(f, &r, -ENOENT);
        return;
    }
    if (m->u.create.kept && !is_of(f, m->u.create.kept, m->u.create.owner)) {
        r.stage = PRIVSEP_STAGE_LAYER;
        reply(f, &r, -EPERM);
        return;
    }
    if (fails_restore(f, m))
        return;
    memcpy(f->mounts, m->u.create.volumes, sizeof(f->mounts));
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++) {
        uint32_t n = m->u.create.volumes[i].number;

        if (m->u.create.volumes[i].flags == PRIVSEP_MOUNT_HOST_DIR) {
            memcpy(f->host_dir, m->u.create.volume_owners[i], PRIVSEP_OWNER_SIZE);
            continue;
        }
        if (n && (!f->volume[n] || memcmp(f->volume_owner[n], m->u.create.volume_owners[i],
                                          PRIVSEP_OWNER_SIZE) != 0)) {
            r.stage = PRIVSEP_STAGE_VOLUME;
            reply(f, &r, f->volume[n] ? -EPERM : -ENOENT);
            return;
        }
    }
    if (!(m->u.create.flags & PRIVSEP_CREATE_COPY))
        f->kept[m->u.create.kept] = f->memory[m->u.create.kept] = false;
    s = claim(f, &r.slot);
    if (!s) {
        r.stage = PRIVSEP_STAGE_SLOT;
        reply(f, &r, -EAGAIN);
        return;
    }
    memcpy(s->id, m->u.create.id, sizeof(s->id));
    memcpy(s->key, m->u.create.key, sizeof(s->key));
    s->level = m->u.create.level;
    s->limits = m->u.create.limits;
    r.gen = s->gen;
    r.u.created.template_number = m->u.create.template_number;
    r.u.created.started_real_ms = s->started_ms;
    reply(f, &r, 0);
}

static void do_kill(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};
    struct slot *s = slot_of(f, m);

    if (f->knobs[FAKE_FAIL_KILLS] > 0) {
        f->knobs[FAKE_FAIL_KILLS]--;
        reply(f, &r, -EIO);
        return;
    }
    if (s) {
        s->live = false;
        f->counts.live--;
    }
    reply(f, &r, s ? 0 : -ESTALE);
}

static void do_connect(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};
    int fds[PRIVSEP_MAX_FDS];

    f->counts.connects++;
    if (!slot_of(f, m) || f->knobs[FAKE_CONNECT_ERRNO]) {
        reply(f, &r, slot_of(f, m) ? -f->knobs[FAKE_CONNECT_ERRNO] : -ESTALE);
        return;
    }
    for (uint32_t i = 0; i < m->u.connect.count; i++)
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    privsep_server_send(f->server, 0, &r, fds, m->u.connect.count);
}

static void do_command_sandbox(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};
    int fds[PRIVSEP_COMMAND_SANDBOX_SOCKETS];

    f->counts.command_sandboxes++;
    if (slot_of(f, m) && slot_of(f, m)->frozen) {
        reply(f, &r, -EBUSY);
        return;
    }
    if (!slot_of(f, m) || f->knobs[FAKE_FAIL_COMMAND_SANDBOXES] > 0) {
        f->knobs[FAKE_FAIL_COMMAND_SANDBOXES]--;
        reply(f, &r, slot_of(f, m) ? -EMFILE : -ESTALE);
        return;
    }
    memcpy(f->command_sandbox_key, m->u.command_sandbox.key, sizeof(f->command_sandbox_key));
    r.u.command_sandbox.number = ++f->last_command_sandbox;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    privsep_server_send(f->server, 0, &r, fds, ARRAY_SIZE(fds));
}

static void do_command_sandbox_end(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};

    f->counts.command_sandbox_ends++;
    if (!slot_of(f, m) || !slot_of(f, m)->frozen) /* else it is answered after the thaw */
        reply(f, &r, slot_of(f, m) ? 0 : -ESTALE);
}

/* fail: so many of them. */
static void set_frozen(struct fake *f, const struct privsep_msg *m, enum fake_knob fail, int status,
                       bool frozen)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};
    struct slot *s = slot_of(f, m);

    if (s && f->knobs[fail] > 0) {
        f->knobs[fail]--;
        reply(f, &r, status);
        return;
    }
    if (s)
        s->frozen = frozen;
    reply(f, &r, s ? 0 : -ESTALE);
}

static void do_freeze(struct fake *f, const struct privsep_msg *m)
{
    set_frozen(f, m, FAKE_FAIL_FREEZES, -ETIMEDOUT, true);
}

static void do_thaw(struct fake *f, const struct privsep_msg *m)
{
    set_frozen(f, m, FAKE_FAIL_THAWS, -EIO, false);
}

static void tell_limits(struct privsep_msg *r, const struct privsep_limits *l)
{
    r->u.resize.memory_bytes = l->memory_bytes;
    r->u.resize.disk_bytes = l->disk_bytes;
    r->u.resize.cpu_milli = l->cpu_milli;
}

static void do_resize(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};
    struct slot *s = slot_of(f, m);

    f->counts.resizes++;
    if (!s) {
        reply(f, &r, -ESTALE);
        return;
    }
    if (f->knobs[FAKE_FAIL_RESIZES] > 0) {
        f->knobs[FAKE_FAIL_RESIZES]--;
        tell_limits(&r, &s->limits);
        r.u.resize.uses = PRIVSEP_USES_MEMORY;
        r.u.resize.used_bytes = 12345;
        reply(f, &r, -EBUSY);
        return;
    }
    s->limits.memory_bytes = m->u.resize.memory_bytes;
    s->limits.disk_bytes = m->u.resize.disk_bytes;
    s->limits.cpu_milli = m->u.resize.cpu_milli;
    tell_limits(&r, &s->limits);
    if (f->knobs[FAKE_KEEP_RESIZES] > 0) {
        f->knobs[FAKE_KEEP_RESIZES]--;
        reply(f, &r, -ETIMEDOUT);
        return;
    }
    reply(f, &r, 0);
}

static void do_keep(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    struct slot *s = slot_of(f, m);
    uint32_t n = m->u.kept.number;

    r.u.kept.number = n;
    if (f->knobs[FAKE_FAIL_KEEPS] > 0) {
        f->knobs[FAKE_FAIL_KEEPS]--;
        reply(f, &r, -ENOSPC);
        return;
    }
    if (!s || f->kept[n]) {
        reply(f, &r, s ? -EEXIST : -ESTALE);
        return;
    }
    s->live = false;
    f->counts.live--;
    f->kept[n] = true;
    f->memory[n] = false;
    memcpy(f->owner[n], m->u.kept.owner, sizeof(f->owner[n]));
    reply(f, &r, 0);
}

static void refuse_dump(struct fake *f, struct privsep_msg *r, int status)
{
    strcpy(r->u.refused.why, status == -EOPNOTSUPP ? "process 7 is traced by a debugger" : "");
    reply(f, r, status);
}

static void do_dump(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    int error = f->knobs[FAKE_MEMORY_ERRNO];
    bool fails = f->knobs[FAKE_FAIL_DUMPS] > 0;
    bool ends = fails && (error == ETIMEDOUT || error == ECHILD);
    struct slot *s = slot_of(f, m);
    uint32_t n = m->u.kept.number;

    f->knobs[FAKE_FAIL_DUMPS] -= fails;
    if (!s || s->frozen || f->kept[n] || (fails && !ends)) {
        refuse_dump(f, &r, !s ? -ESTALE : s->frozen ? -EBUSY : f->kept[n] ? -EEXIST : -error);
        return;
    }
    s->live = false;
    f->counts.live--;
    f->kept[n] = true;
    f->memory[n] = !ends;
    memcpy(f->owner[n], m->u.kept.owner, sizeof(f->owner[n]));
    reply(f, &r, ends ? -error : 0);
}

static void do_copy(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    struct slot *of = slot_of(f, m);
    bool there = of != NULL;

    if (there && f->knobs[FAKE_STUCK_COPIES] > 0) {
        f->knobs[FAKE_STUCK_COPIES]--;
        of->frozen = true;
        reply(f, &r, -ENOTRECOVERABLE);
        return;
    }
    f->kept[m->u.kept.number] |= there;
    if (there)
        memcpy(f->owner[m->u.kept.number], m->u.kept.owner, PRIVSEP_OWNER_SIZE);
    reply(f, &r, there ? 0 : -ESTALE);
}

static void do_drop(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    bool there = f->kept[m->u.kept.number];

    if (f->knobs[FAKE_FAIL_DROPS] > 0) {
        f->knobs[FAKE_FAIL_DROPS]--;
        reply(f, &r, -EIO);
        return;
    }
    if (there && !is_of(f, m->u.kept.number, m->u.kept.owner)) {
        reply(f, &r, -EPERM);
        return;
    }
    f->kept[m->u.kept.number] = f->memory[m->u.kept.number] = false;
    reply(f, &r, there ? 0 : -ENOENT);
}

static void do_archive(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    bool stopped = f->archive_stopped;

    f->archive_stopped = false;
    f->counts.archives++;
    if (f->knobs[FAKE_ARCHIVE_STAYS])
        snprintf(r.u.refused.why, sizeof(r.u.refused.why), "the bucket is away");
    if (!f->kept[m->u.kept.number] || !is_of(f, m->u.kept.number, m->u.kept.owner))
        reply(f, &r, -ENOENT);
    else
        reply(f, &r, stopped ? -ECANCELED : f->knobs[FAKE_ARCHIVE_ERRNO]);
}

static void release_held(struct fake *f);

static void do_archive_stop(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    f->archive_stopped = f->knobs[FAKE_HOLD_ARCHIVES];
    reply(f, &r, 0);
    if (f->archive_stopped) {
        f->knobs[FAKE_HOLD_ARCHIVES] = 0;
        release_held(f);
    }
}

static void do_fetch(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    f->counts.fetches++;
    if (f->knobs[FAKE_FETCH_ERRNO])
        snprintf(r.u.refused.why, sizeof(r.u.refused.why), "the bucket is away");
    reply(f, &r, f->knobs[FAKE_FETCH_ERRNO]);
}

/* A file of four bytes, opened twice. */
static void do_export(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    int fd = memfd_create("exported", MFD_CLOEXEC), fds[PRIVSEP_EXPORT_FDS];
    char path[64];

    f->counts.exports++;
    if (f->knobs[FAKE_EXPORT_ERRNO] || !f->kept[m->u.exchange.number]) {
        snprintf(r.u.refused.why, sizeof(r.u.refused.why), "a part of it cannot be in one");
        reply(f, &r, f->knobs[FAKE_EXPORT_ERRNO] ? f->knobs[FAKE_EXPORT_ERRNO] : -ENOENT);
        close(fd);
        return;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (write(fd, "file", 4) != 4)
        abort();
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = open(path, O_RDONLY | O_CLOEXEC);
    privsep_server_send(f->server, 0, &r, fds, ARRAY_SIZE(fds));
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    close(fd);
}

static void do_import(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    f->kept[m->u.exchange.number] = true;
    memcpy(f->owner[m->u.exchange.number], m->u.exchange.owner, PRIVSEP_OWNER_SIZE);
    reply(f, &r, 0);
}

static void do_kepts(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    bool busy = f->knobs[FAKE_BUSY_KEPTS] > 0;

    f->knobs[FAKE_BUSY_KEPTS] -= busy;
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        struct privsep_msg event = {.op = PRIVSEP_KEPT};

        if (!f->kept[n])
            continue;
        event.u.kept.number = n;
        event.u.kept.busy = busy;
        event.u.kept.without_memory = !f->memory[n];
        memcpy(event.u.kept.owner, f->owner[n], sizeof(f->owner[n]));
        privsep_server_send(f->server, 0, &event, NULL, 0);
    }
    reply(f, &r, 0);
}

static bool fails_volume(struct fake *f, struct privsep_msg *r)
{
    if (f->knobs[FAKE_FAIL_VOLUMES] <= 0)
        return false;
    f->knobs[FAKE_FAIL_VOLUMES]--;
    reply(f, r, -EIO);
    return true;
}

static void do_volume_make(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    uint32_t n = m->u.volume.number;

    if (fails_volume(f, &r))
        return;
    if (f->volume[n]) {
        reply(f, &r, -EEXIST);
        return;
    }
    f->volume[n] = true;
    memcpy(f->volume_owner[n], m->u.volume.owner, PRIVSEP_OWNER_SIZE);
    if (!f->knobs[FAKE_MUTE_VOLUMES])
        reply(f, &r, 0);
}

static void do_volume_remove(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};
    uint32_t n = m->u.volume.number;
    int status = !f->volume[n]                                                            ? -ENOENT
                 : memcmp(f->volume_owner[n], m->u.volume.owner, PRIVSEP_OWNER_SIZE) != 0 ? -EPERM
                                                                                          : 0;

    if (fails_volume(f, &r))
        return;
    if (status == 0)
        f->volume[n] = false;
    if (!f->knobs[FAKE_MUTE_VOLUMES])
        reply(f, &r, status);
}

static void do_volumes(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX; n++) {
        struct privsep_msg event = {.op = PRIVSEP_VOLUME};

        if (!f->volume[n])
            continue;
        event.u.volume.number = n;
        memcpy(event.u.volume.owner, f->volume_owner[n], PRIVSEP_OWNER_SIZE);
        privsep_server_send(f->server, 0, &event, NULL, 0);
    }
    reply(f, &r, 0);
}

static void do_list(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    f->counts.lists++;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct privsep_msg item = {.op = PRIVSEP_ITEM, .slot = i, .gen = f->slots[i].gen};

        if (!f->slots[i].live)
            continue;
        memcpy(item.u.item.id, f->slots[i].id, sizeof(item.u.item.id));
        item.u.item.started_real_ms = f->slots[i].started_ms;
        item.u.item.frozen = f->slots[i].frozen;
        item.u.item.limits = f->slots[i].limits;
        privsep_server_send(f->server, 0, &item, NULL, 0);
    }
    reply(f, &r, 0);
}

static void do_templates(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    for (uint32_t number = PRIVSEP_TEMPLATE_HOST; number <= PRIVSEP_TEMPLATE_BASE; number++) {
        struct privsep_msg t = {.op = PRIVSEP_TEMPLATE};

        if (number == PRIVSEP_TEMPLATE_BASE && !f->knobs[FAKE_BASE_READY])
            continue; /* as privd: those that are there */
        t.u.template.number = number;
        t.u.template.ready = 1;
        t.u.template.size_bytes = 1000 * number;
        privsep_server_send(f->server, 0, &t, NULL, 0);
    }
    reply(f, &r, 0);
}

static void do_stat(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq, .slot = m->slot, .gen = m->gen};

    f->counts.stats++;
    if (!slot_of(f, m)) {
        reply(f, &r, -ESTALE);
        return;
    }
    f->cpu_us += 1000;
    r.u.stat.memory_used_bytes = 1u << 20;
    r.u.stat.memory_limit_bytes = 1u << 30;
    r.u.stat.cpu_used_us = f->knobs[FAKE_CPU_MS] ? (uint64_t)f->knobs[FAKE_CPU_MS] * 1000
                                                 : f->cpu_us;
    reply(f, &r, 0);
}

static void do_job(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    if (f->knobs[FAKE_FAIL_JOBS] > 0) {
        f->knobs[FAKE_FAIL_JOBS]--;
        reply(f, &r, -EIO);
        return;
    }
    if (m->u.job.template_number == PRIVSEP_TEMPLATE_BASE)
        f->knobs[FAKE_BASE_READY] = m->u.job.kind == PRIVSEP_JOB_TEMPLATE_BUILD;
    reply(f, &r, 0);
}

static void do_capacity(struct fake *f, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = m->op, .seq = m->seq};

    r.u.capacity.slots_max = SLOTS;
    r.u.capacity.sandboxes = f->counts.live;
    strcpy(r.u.capacity.disk_backend, "memory");
    r.u.capacity.pool[0] = (struct privsep_pool){PRIVSEP_TEMPLATE_HOST, 3, 4, 5, 6, 7};
    r.u.capacity.pool[1].template_number = 999; /* removed a moment ago */
    reply(f, &r, 0);
}

static const struct {
    enum privsep_op op;
    void (*run)(struct fake *f, const struct privsep_msg *m);
    enum fake_knob hold; /* FAKE_KNOB_COUNT: none */
} requests[] = {
    {PRIVSEP_CREATE, do_create, FAKE_HOLD_CREATES},
    {PRIVSEP_KILL, do_kill, FAKE_HOLD_KILLS},
    {PRIVSEP_JOB, do_job, FAKE_HOLD_JOBS},
    {PRIVSEP_CONNECT, do_connect, FAKE_KNOB_COUNT},
    {PRIVSEP_STAT, do_stat, FAKE_KNOB_COUNT},
    {PRIVSEP_LIST, do_list, FAKE_KNOB_COUNT},
    {PRIVSEP_TEMPLATES, do_templates, FAKE_KNOB_COUNT},
    {PRIVSEP_CAPACITY, do_capacity, FAKE_KNOB_COUNT},
    {PRIVSEP_COMMAND_SANDBOX, do_command_sandbox, FAKE_KNOB_COUNT},
    {PRIVSEP_COMMAND_SANDBOX_END, do_command_sandbox_end, FAKE_KNOB_COUNT},
    {PRIVSEP_FREEZE, do_freeze, FAKE_HOLD_FREEZES},
    {PRIVSEP_THAW, do_thaw, FAKE_HOLD_THAWS},
    {PRIVSEP_KEEP, do_keep, FAKE_HOLD_KEEPS},
    {PRIVSEP_DUMP, do_dump, FAKE_HOLD_DUMPS},
    {PRIVSEP_ARCHIVE, do_archive, FAKE_HOLD_ARCHIVES},
    {PRIVSEP_ARCHIVE_STOP, do_archive_stop, FAKE_KNOB_COUNT},
    {PRIVSEP_FETCH, do_fetch, FAKE_KNOB_COUNT},
    {PRIVSEP_EXPORT, do_export, FAKE_HOLD_TRANSFERS},
    {PRIVSEP_IMPORT, do_import, FAKE_HOLD_TRANSFERS},
    {PRIVSEP_COPY, do_copy, FAKE_HOLD_COPIES},
    {PRIVSEP_RESIZE, do_resize, FAKE_HOLD_RESIZES},
    {PRIVSEP_DROP, do_drop, FAKE_HOLD_DROPS},
    {PRIVSEP_KEPTS, do_kepts, FAKE_KNOB_COUNT},
    {PRIVSEP_VOLUME_MAKE, do_volume_make, FAKE_HOLD_VOLUMES},
    {PRIVSEP_VOLUME_REMOVE, do_volume_remove, FAKE_HOLD_VOLUMES},
    {PRIVSEP_VOLUMES, do_volumes, FAKE_KNOB_COUNT},
};

static void dispatch(struct fake *f, const struct privsep_msg *m)
{
    if (m->op == PRIVSEP_LIST && f->knobs[FAKE_DROP_LISTS] > 0) {
        f->knobs[FAKE_DROP_LISTS]--;
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        if (requests[i].op != m->op)
            continue;
        int *hold = requests[i].hold != FAKE_KNOB_COUNT ? &f->knobs[requests[i].hold] : NULL;

        if (hold && *hold > 0) {
            if (f->held_n == HELD)
                abort();
            f->held[f->held_n++] = *m;
            return;
        }
        if (hold && *hold < 0)
            *hold = 1;
        requests[i].run(f, m);
        return;
    }
    fprintf(stderr, "core_fake.c: no answer is written for request %u\n", m->op);
    abort();
}

static void release_held(struct fake *f)
{
    size_t n = f->held_n;

    f->held_n = 0;
    for (size_t i = 0; i < n; i++)
        dispatch(f, &f->held[i]);
}

static void on_request(void *arg, const struct privsep_msg *m)
{
    struct fake *f = arg;
    struct privsep_msg hello = {.op = PRIVSEP_HELLO, .seq = m->seq};

    if (m->op == PRIVSEP_HELLO) {
        hello.u.hello.version = PRIVSEP_VERSION;
        hello.u.hello.keeps = !f->knobs[FAKE_KEEPS_NOTHING];
        f->counts.peers++;
        reply(f, &hello, 0);
        return;
    }
    f->counts.creates += m->op == PRIVSEP_CREATE;
    f->counts.kills += m->op == PRIVSEP_KILL;
    f->counts.jobs += m->op == PRIVSEP_JOB;
    f->counts.freezes += m->op == PRIVSEP_FREEZE;
    f->counts.thaws += m->op == PRIVSEP_THAW;
    f->counts.keeps += m->op == PRIVSEP_KEEP;
    f->counts.dumps += m->op == PRIVSEP_DUMP;
    f->counts.drops += m->op == PRIVSEP_DROP;
    if (m->op == PRIVSEP_JOB)
        f->job_seq = m->seq;
    dispatch(f, m);
}

static void on_peer(void *arg, bool there)
{
    struct fake *f = arg;

    if (!there)
        f->held_n = 0;
}

static void open_channel(struct fake *f)
{
    const struct privsep_server_events ev = {on_request, on_peer, f};

    if (privsep_server_new(f->path, getuid(), &ev, &f->server) < 0)
        abort();
}

static void close_channel(struct fake *f)
{
    if (f->server)
        privsep_server_free(f->server);
    f->server = NULL;
    f->held_n = 0;
}

/* -- agents ------------------------------------------------------------------------------------ */

static bool read_key(const char *head, uint8_t key[static PRIVSEP_KEY_SIZE])
{
    const char *at = strcasestr(head, AGENT_KEY_HEADER ": ");
    char hex[2 * PRIVSEP_KEY_SIZE + 1] = "";

    if (!at)
        return false;
    strncpy(hex, at + strlen(AGENT_KEY_HEADER ": "), sizeof(hex) - 1);
    return ids_unhex(hex, key, PRIVSEP_KEY_SIZE) >= 0;
}

/* Whose agent is asked; NULL: no sandbox has that key. */
static struct slot *slot_asked(struct fake *f, const char *head)
{
    uint8_t key[PRIVSEP_KEY_SIZE];

    if (!read_key(head, key))
        return NULL;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (f->slots[i].live && memcmp(f->slots[i].key, key, sizeof(key)) == 0)
            return &f->slots[i];
    return NULL;
}

static bool key_is_good(struct fake *f, const char *head)
{
    uint8_t key[PRIVSEP_KEY_SIZE];

    if (f->last_command_sandbox && read_key(head, key) &&
        memcmp(f->command_sandbox_key, key, sizeof(key)) == 0)
        return true;
    return slot_asked(f, head) != NULL;
}

/* An envelope of Connect's stream: flags, length, JSON. */
static size_t put_envelope(char *out, char flags, const char *json)
{
    size_t n = strlen(json);

    out[0] = flags;
    out[1] = out[2] = 0;
    out[3] = (char)(n >> 8);
    out[4] = (char)n;
    memcpy(out + 5, json, n);
    return 5 + n;
}

static size_t put_start(int answer, char *out)
{
    size_t n = 0;

    if (answer == FAKE_START_LIES)
        return put_envelope(out, 0, "[]");
    if (answer == FAKE_START_FAILS)
        return put_envelope(out, 2,
                            "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"no such "
                            "program\"}}");
    n = put_envelope(out, 0, "{\"event\":{\"start\":{\"pid\":7}}}");
    n += put_envelope(out + n, 0, "{\"event\":{\"data\":{\"stdout\":\"b3V0\"}}}");
    if (answer != FAKE_START_ENDS)
        return n;
    n += put_envelope(out + n, 0, "{\"event\":{\"data\":{\"stderr\":\"ZXJy\"}}}");
    n += put_envelope(
        out + n, 0,
        "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status "
        "3\"}}}");
    return n + put_envelope(out + n, 2, "{}");
}

static void respond_start(struct fake *f, struct conn *c)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n"
                               "Connection: close\r\n\r\n";
    char out[1024];
    size_t n = put_start(f->knobs[FAKE_START], out);

    f->counts.starts++;
    if (send(c->fd, head, sizeof(head) - 1, MSG_NOSIGNAL) > 0)
        (void)!send(c->fd, out, n, MSG_NOSIGNAL);
    c->len = 0;
    if (f->knobs[FAKE_START] != FAKE_START_HANGS) {
        close(c->fd);
        c->fd = -1;
    }
}

/* The answer of an agent that is to prepare for a dump. */
static int put_prepare(struct fake *f, const struct conn *c, char *out, size_t size)
{
    static const char why[] = "{\"message\":\"a process listens with a filter of its own\"}";
    struct slot *s = slot_asked(f, c->buf);
    int status = f->knobs[FAKE_PREPARE];

    f->counts.prepares++;
    if (status == 0)
        return 0;
    if (s && status == 204)
        s->prepared = true;
    if (status != 409)
        return snprintf(out, size, "HTTP/1.1 %d X\r\n%s\r\n", status,
                        status == 204 ? "" : "Content-Length: 0\r\n");
    return snprintf(out, size,
                    "HTTP/1.1 409 X\r\nContent-Type: application/json\r\n"
                    "Content-Length: %zu\r\n\r\n%s",
                    sizeof(why) - 1, why);
}

/* And when it is to go on. */
static int put_go_on(struct fake *f, const struct conn *c, char *out, size_t size)
{
    struct slot *s = slot_asked(f, c->buf);
    bool busy = f->knobs[FAKE_LATE_GO_ONS] > 0;

    f->knobs[FAKE_LATE_GO_ONS] -= busy;
    if (s && !busy)
        s->prepared = false;
    return snprintf(out, size, "HTTP/1.1 %d X\r\n%s\r\n", busy ? 503 : 204,
                    busy ? "Content-Length: 0\r\n" : "");
}

static void respond(struct fake *f, struct conn *c, const char *body)
{
    static const char envs[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                               "Content-Length: 9\r\n\r\n{\"A\":\"b\"}";
    static const char logs[] = "{\"logs\":[{\"seq\":1,\"atMs\":1,\"level\":\"info\",\"message\":"
                               "\"process 7 started\",\"fields\":{\"pid\":\"7\"}},{\"bad\":1}]}";
    static const char hooks[] = "{\"ran\":0,\"failed\":[]}";
    char out[512];
    int n;

    if (!key_is_good(f, c->buf))
        f->counts.bad_keys++;
    if (f->knobs[FAKE_AGENT_SILENT])
        return;
    if (strncmp(c->buf, "POST /process.Process/Start ", 28) == 0) {
        respond_start(f, c);
        return;
    }
    if (strncmp(c->buf, "POST /cay/volume-end ", 21) == 0) {
        f->counts.volume_ends++;
        n = snprintf(out, sizeof(out), "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n",
                     f->knobs[FAKE_VOLUME_BUSY] ? 409 : 200);
    } else if (strncmp(c->buf, "POST /cay/hooks ", 16) == 0) {
        n = snprintf(out, sizeof(out),
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     sizeof(hooks) - 1, hooks);
    } else if (strncmp(c->buf, "POST /cay/prepare ", 18) == 0)
        n = put_prepare(f, c, out, sizeof(out));
    else if (strncmp(c->buf, "POST /cay/go-on ", 16) == 0)
        n = put_go_on(f, c, out, sizeof(out));
    else if (strncmp(c->buf, "GET /envs ", 10) == 0)
        n = snprintf(out, sizeof(out), "%s", envs);
    else if (strncmp(c->buf, "GET /cay/logs ", 14) == 0)
        n = snprintf(out, sizeof(out),
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     sizeof(logs) - 1, logs);
    else {
        f->counts.inits++;
        snprintf(f->init_body, sizeof(f->init_body), "%s", body);
        n = snprintf(out, sizeof(out), "HTTP/1.1 %d X\r\n%s\r\n", f->knobs[FAKE_AGENT_STATUS],
                     f->knobs[FAKE_AGENT_STATUS] == 204 ? "" : "Content-Length: 0\r\n");
    }
    if (n > 0)
        (void)!send(c->fd, out, (size_t)n, MSG_NOSIGNAL);
    c->len = 0;
}

static void read_conn(struct fake *f, struct conn *c)
{
    ssize_t n = recv(c->fd, c->buf + c->len, sizeof(c->buf) - 1 - c->len, MSG_DONTWAIT);
    const char *end, *length;
    size_t wanted;

    if (n <= 0) {
        close(c->fd);
        c->fd = -1;
        return;
    }
    c->len += (size_t)n;
    c->buf[c->len] = '\0';
    end = strstr(c->buf, "\r\n\r\n");
    if (!end)
        return;
    length = strcasestr(c->buf, "content-length: ");
    wanted = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    if (c->len - (size_t)(end + 4 - c->buf) >= wanted)
        respond(f, c, end + 4);
}

static void accept_conn(struct fake *f)
{
    int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    for (size_t i = 0; fd >= 0 && i < CONNS; i++) {
        if (f->conns[i].fd >= 0)
            continue;
        f->conns[i].fd = fd;
        f->conns[i].len = 0;
        return;
    }
    if (fd >= 0)
        abort();
}

static void open_agents(struct fake *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);

    f->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->listen_fd < 0 || bind(f->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(f->listen_fd, 4096) < 0 ||
        getsockname(f->listen_fd, (struct sockaddr *)&a, &len) < 0)
        abort();
    f->port = ntohs(a.sin_port);
}

/* -- the thread -------------------------------------------------------------------------------- */

static void turn(struct fake *f, const struct pollfd *p, size_t n)
{
    uint64_t ignored;

    if (p[0].revents && read(f->wake, &ignored, sizeof(ignored)) < 0)
        abort();
    if (p[1].revents)
        accept_conn(f);
    if (p[2].revents && f->server)
        privsep_server_dispatch(f->server);
    for (size_t i = 3; i < n; i++)
        if (p[i].revents && f->conns[i - 3].fd == p[i].fd && p[i].fd >= 0)
            read_conn(f, &f->conns[i - 3]);
    release_held(f);
}

static void *run(void *arg)
{
    struct fake *f = arg;
    struct pollfd p[3 + CONNS];

    pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        p[0] = (struct pollfd){f->wake, POLLIN, 0};
        p[1] = (struct pollfd){f->listen_fd, POLLIN, 0};
        p[2] = (struct pollfd){f->server ? privsep_server_fd(f->server) : -1, POLLIN, 0};
        for (size_t i = 0; i < CONNS; i++)
            p[3 + i] = (struct pollfd){f->conns[i].fd, POLLIN, 0};
        pthread_mutex_unlock(&f->lock);
        poll(p, ARRAY_SIZE(p), -1);
        pthread_mutex_lock(&f->lock);
        turn(f, p, ARRAY_SIZE(p));
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void wake(struct fake *f)
{
    uint64_t one = 1;

    if (write(f->wake, &one, sizeof(one)) < 0)
        abort();
}

struct fake *fake_start(const char *dir)
{
    struct fake *f = calloc(1, sizeof(*f));

    f->slots = calloc(SLOTS, sizeof(*f->slots));
    f->held = calloc(HELD, sizeof(*f->held));
    f->conns = calloc(CONNS, sizeof(*f->conns));
    for (size_t i = 0; i < CONNS; i++)
        f->conns[i].fd = -1;
    f->knobs[FAKE_AGENT_STATUS] = f->knobs[FAKE_PREPARE] = 204;
    f->knobs[FAKE_MEMORY_ERRNO] = EOPNOTSUPP;
    f->wake = eventfd(0, EFD_CLOEXEC);
    snprintf(f->path, sizeof(f->path), "%s/privd.sock", dir);
    pthread_mutex_init(&f->lock, NULL);
    open_agents(f);
    open_channel(f);
    if (pthread_create(&f->thread, NULL, run, f) != 0)
        abort();
    return f;
}

void fake_stop(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    wake(f);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    close_channel(f);
    for (size_t i = 0; i < CONNS; i++)
        util_close(&f->conns[i].fd);
    close(f->listen_fd);
    close(f->wake);
    free(f->slots);
    free(f->held);
    free(f->conns);
    free(f);
}

const char *fake_path(const struct fake *f)
{
    return f->path;
}

unsigned short fake_agent_port(const struct fake *f)
{
    return f->port;
}

void fake_set(struct fake *f, enum fake_knob knob, int value)
{
    pthread_mutex_lock(&f->lock);
    f->knobs[knob] = value;
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

struct fake_counts fake_counts(struct fake *f)
{
    struct fake_counts out;

    pthread_mutex_lock(&f->lock);
    out = f->counts;
    pthread_mutex_unlock(&f->lock);
    return out;
}

void fake_down(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    close_channel(f);
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_restart(struct fake *f, bool forget)
{
    pthread_mutex_lock(&f->lock);
    close_channel(f);
    for (uint32_t i = 0; forget && i < SLOTS; i++)
        f->slots[i].live = false;
    if (forget)
        f->counts.live = 0;
    open_channel(f);
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_add_stray(struct fake *f, const char *id)
{
    uint32_t number;
    struct slot *s;

    pthread_mutex_lock(&f->lock);
    s = claim(f, &number);
    strncpy(s->id, id, sizeof(s->id) - 1);
    pthread_mutex_unlock(&f->lock);
}

void fake_restored(struct fake *f, unsigned number, const char *id,
                   const uint8_t key[static PRIVSEP_KEY_SIZE])
{
    struct privsep_msg m = {.op = PRIVSEP_ITEM};
    struct slot *s;

    pthread_mutex_lock(&f->lock);
    s = claim(f, &m.slot);
    strncpy(s->id, id, sizeof(s->id) - 1);
    memcpy(s->key, key, sizeof(s->key));
    m.gen = s->gen;
    memcpy(m.u.item.id, s->id, sizeof(m.u.item.id));
    m.u.item.limits = s->limits;
    privsep_server_send(f->server, 0, &m, NULL, 0);
    f->kept[number] = f->memory[number] = false;
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

static struct slot *find(struct fake *f, const char *id)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        if (f->slots[i].live && strncmp(f->slots[i].id, id, PRIVSEP_ID_SIZE) == 0)
            return &f->slots[i];
    return NULL;
}

bool fake_lives(struct fake *f, const char *id)
{
    bool lives;

    pthread_mutex_lock(&f->lock);
    lives = find(f, id) != NULL;
    pthread_mutex_unlock(&f->lock);
    return lives;
}

int fake_level(struct fake *f, const char *id)
{
    const struct slot *s;
    int level;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    level = s ? (int)s->level : -1;
    pthread_mutex_unlock(&f->lock);
    return level;
}

void fake_end(struct fake *f, const char *id, unsigned cause)
{
    struct privsep_msg m = {.op = PRIVSEP_ENDED};
    struct slot *s;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    if (s) {
        s->live = false;
        f->counts.live--;
        m.slot = (uint32_t)(s - f->slots);
        m.gen = s->gen;
        memcpy(m.u.ended.id, s->id, sizeof(s->id));
        m.u.ended.cause = cause;
        privsep_server_send(f->server, 0, &m, NULL, 0);
        wake(f);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_end_silently(struct fake *f, const char *id)
{
    struct slot *s;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    if (s) {
        s->live = false;
        f->counts.live--;
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_set_frozen(struct fake *f, const char *id, bool frozen)
{
    struct slot *s;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    if (s)
        s->frozen = frozen;
    pthread_mutex_unlock(&f->lock);
}

void fake_break_starts(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < CONNS; i++)
        if (f->conns[i].fd >= 0)
            shutdown(f->conns[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&f->lock);
}

void fake_set_kept(struct fake *f, unsigned number, bool kept)
{
    pthread_mutex_lock(&f->lock);
    f->kept[number] = kept;
    f->memory[number] = false;
    memset(f->owner[number], 0, sizeof(f->owner[number]));
    pthread_mutex_unlock(&f->lock);
}

void fake_set_owner(struct fake *f, unsigned number, const char *owner)
{
    pthread_mutex_lock(&f->lock);
    memcpy(f->owner[number], owner, PRIVSEP_OWNER_SIZE);
    pthread_mutex_unlock(&f->lock);
}

bool fake_is_kept(struct fake *f, unsigned number)
{
    bool kept;

    pthread_mutex_lock(&f->lock);
    kept = f->kept[number];
    pthread_mutex_unlock(&f->lock);
    return kept;
}

void fake_set_memory(struct fake *f, unsigned number, bool there)
{
    pthread_mutex_lock(&f->lock);
    f->memory[number] = there;
    pthread_mutex_unlock(&f->lock);
}

bool fake_has_memory(struct fake *f, unsigned number)
{
    bool there;

    pthread_mutex_lock(&f->lock);
    there = f->memory[number];
    pthread_mutex_unlock(&f->lock);
    return there;
}

bool fake_is_prepared(struct fake *f, const char *id)
{
    const struct slot *s;
    bool prepared;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    prepared = s && s->prepared;
    pthread_mutex_unlock(&f->lock);
    return prepared;
}

void fake_set_volume(struct fake *f, unsigned number, const char *owner)
{
    pthread_mutex_lock(&f->lock);
    f->volume[number] = owner != NULL;
    if (owner)
        memcpy(f->volume_owner[number], owner, PRIVSEP_OWNER_SIZE);
    pthread_mutex_unlock(&f->lock);
}

bool fake_is_volume(struct fake *f, unsigned number)
{
    bool there;

    pthread_mutex_lock(&f->lock);
    there = f->volume[number];
    pthread_mutex_unlock(&f->lock);
    return there;
}

void fake_host_dir(struct fake *f, char out[static PRIVSEP_OWNER_SIZE + 1])
{
    pthread_mutex_lock(&f->lock);
    memcpy(out, f->host_dir, PRIVSEP_OWNER_SIZE);
    pthread_mutex_unlock(&f->lock);
    out[PRIVSEP_OWNER_SIZE] = '\0';
}

struct privsep_mount fake_mount(struct fake *f, unsigned place)
{
    struct privsep_mount mount;

    pthread_mutex_lock(&f->lock);
    mount = f->mounts[place];
    pthread_mutex_unlock(&f->lock);
    return mount;
}

struct privsep_limits fake_limits(struct fake *f, const char *id)
{
    struct privsep_limits l = {0};
    const struct slot *s;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    if (s)
        l = s->limits;
    pthread_mutex_unlock(&f->lock);
    return l;
}

bool fake_is_frozen(struct fake *f, const char *id)
{
    const struct slot *s;
    bool frozen;

    pthread_mutex_lock(&f->lock);
    s = find(f, id);
    frozen = s && s->frozen;
    pthread_mutex_unlock(&f->lock);
    return frozen;
}

void fake_progress(struct fake *f, unsigned percent, const char *text)
{
    struct privsep_msg m = {.op = PRIVSEP_PROGRESS};

    pthread_mutex_lock(&f->lock);
    m.u.progress.job_seq = f->job_seq;
    m.u.progress.percent = percent;
    strncpy(m.u.progress.text, text, sizeof(m.u.progress.text) - 1);
    privsep_server_send(f->server, 0, &m, NULL, 0);
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void fake_init_body(struct fake *f, char *out, size_t size)
{
    pthread_mutex_lock(&f->lock);
    snprintf(out, size, "%s", f->init_body);
    pthread_mutex_unlock(&f->lock);
}
