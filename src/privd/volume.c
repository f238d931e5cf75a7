#include "privd/volume.h"

#include "base/log.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/sandbox.h"
#include "privd/slots.h"
#include "privsep/server.h"

#include <errno.h>
#include <string.h>

static void answer(struct privd *p, const struct reply_to *to, uint16_t op, uint32_t number,
                   int status)
{
    struct privsep_msg m = {.op = op, .status = status};

    m.u.volume.number = number;
    if (to->seq != 0)
        (void)reply_send(p, to, &m, NULL, 0);
}

/* -- who has which ----------------------------------------------------------------------------- */

bool volume_any(const struct privsep_mount v[static PRIVSEP_CREATE_VOLUMES])
{
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        if (v[i].number)
            return true;
    return false;
}

static bool is_host_dir(const struct privsep_mount *v)
{
    return v->flags == PRIVSEP_MOUNT_HOST_DIR;
}

static bool is_written(const struct privsep_mount *v)
{
    return v->number && !(v->flags & PRIVSEP_MOUNT_READ_ONLY);
}

bool volume_any_writable(const struct privsep_mount v[static PRIVSEP_CREATE_VOLUMES])
{
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        if (is_written(&v[i]))
            return true;
    return false;
}

void volume_sizes(const struct privd *p,
                  const struct privsep_mount v[static PRIVSEP_CREATE_VOLUMES],
                  uint64_t bytes[static PRIVSEP_CREATE_VOLUMES])
{
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        bytes[i] = v[i].number && v[i].flags != PRIVSEP_MOUNT_HOST_DIR
                       ? p->volumes.all[v[i].number].bytes
                       : 0;
}

/* Whether one that has `has` bars `wanted`; wanted NULL: every use of that number does. */
static bool bars(const struct privsep_mount *has, uint32_t number,
                 const struct privsep_mount *wanted)
{
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        if (has[i].number == number && !is_host_dir(&has[i]) &&
            (!wanted || is_written(&has[i]) || is_written(wanted)))
            return true;
    return false;
}

/* A create that waits for a slot counts. */
static bool is_barred(const struct privd *p, uint32_t number, const struct privsep_mount *wanted)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        const struct slot *s = &p->slots[i];

        if (permit_has_volumes(s->state) && bars(s->volumes, number, wanted))
            return true;
    }
    for (const struct create_request *c = p->waiting_first; c; c = c->next)
        if (bars(c->volumes, number, wanted))
            return true;
    return false;
}

/* As of kept files (keep_may_copy): a number alone does not tell whose it is, as it is used again,
 * and a cayd that is mistaken would give one tenant's files to another, or remove them. Test:
 * test_volumes_privd.py, "of another owner". */
static bool is_of(struct privd *p, uint32_t number, const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    bool is = volume_records_is_of(&p->volumes, number, owner);

    if (!is && log_rate_allows(&p->owner_log))
        log_warn("volume %u: asked for by what it does not belong to", number);
    return is;
}

/* The name tells a privd whose options are others than those that cayd was started with: a number
 * alone would give a sandbox another directory of the host. Tests: test_host_dirs.py, "of another
 * name". */
static int may_mount_host_dir(struct privd *p, uint32_t number,
                              const uint8_t name[static PRIVSEP_OWNER_SIZE])
{
    const struct host_dir *d = &p->options.host_dirs[number - 1];

    if (!d->name[0] || strncmp(d->name, (const char *)name, PRIVSEP_OWNER_SIZE) != 0) {
        if (log_rate_allows(&p->owner_log))
            log_warn("directory %u of the host: asked for by another name than it has", number);
        return -EPERM;
    }
    return p->host_dir_fds[number - 1] >= 0 ? 0 : -ENODEV;
}

int volume_may_mount(struct privd *p, const struct privsep_msg *m)
{
    const struct privsep_mount *v = m->u.create.volumes;

    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++) {
        enum volume_state state = volume_records_state(&p->volumes, v[i].number);

        if (!v[i].number)
            continue;
        if (is_host_dir(&v[i])) {
            int rc = may_mount_host_dir(p, v[i].number, m->u.create.volume_owners[i]);

            if (rc < 0)
                return rc;
            continue;
        }
        if (state == VOLUME_NONE)
            return -ENOENT;
        if (!is_of(p, v[i].number, m->u.create.volume_owners[i]))
            return -EPERM;
        if (state != VOLUME_WHOLE || is_barred(p, v[i].number, &v[i]))
            return -EBUSY;
    }
    return 0;
}

/* -- making and removing: one task at a time --------------------------------------------------- */

static void on_worked(void *arg, uint32_t events);
static void work_next(struct privd *p);

static int watch(struct privd *p)
{
    struct volume_worker *w = &p->volume_worker;

    return loop_add(&p->loop, &w->source, w->task.pidfd, on_worked, p);
}

/* A volume that could not be removed is still there, and its removal can be asked for again; one
 * that could not be made is not there. */
static void worked(struct privd *p, uint32_t number, int status)
{
    bool made = volume_records_state(&p->volumes, number) == VOLUME_MAKING;
    struct reply_to to = p->volume_worker.requested[number];

    p->volume_worker.requested[number] = (struct reply_to){0};
    if (volume_records_enter(&p->volumes, number,
                             made == (status == 0) ? VOLUME_WHOLE : VOLUME_NONE) < 0)
        log_error("volume %u: its record cannot be written; the next start corrects it", number);
    answer(p, &to, made ? PRIVSEP_VOLUME_MAKE : PRIVSEP_VOLUME_REMOVE, number, status);
}

static void on_worked(void *arg, uint32_t events)
{
    struct privd *p = arg;
    uint32_t number = p->volume_worker.number;
    int rc;

    loop_remove(&p->loop, &p->volume_worker.source);
    rc = runtime_volume_finish(&p->volume_worker.task);
    if (rc == -EAGAIN && watch(p) == 0)
        return;
    p->volume_worker.number = 0;
    worked(p, number, rc);
    work_next(p);
}

/* A request that could not be begun is answered at once; then the next is tried. */
static void work_next(struct privd *p)
{
    struct volume_worker *w = &p->volume_worker;

    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX && w->number == 0; n++) {
        const struct volume_record *r = &p->volumes.all[n];
        int rc;

        if (r->state != VOLUME_MAKING && r->state != VOLUME_REMOVING)
            continue;
        rc = r->state == VOLUME_MAKING
                 ? runtime_volume_make_begin(p->rt, n, r->bytes, p->volumes.fd, &w->task)
                 : runtime_volume_remove_begin(p->rt, n, p->volumes.fd, &w->task);
        if (rc == 0)
            rc = watch(p);
        if (rc == 0)
            w->number = n;
        else
            worked(p, n, rc);
    }
}

void volume_make_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    uint32_t number = m->u.volume.number;
    int rc = runtime_can_keep(p->rt) ? 0 : -EOPNOTSUPP;

    if (rc == 0 && volume_records_state(&p->volumes, number) != VOLUME_NONE)
        rc = -EEXIST;
    if (rc == 0)
        rc = volume_records_enter_new(&p->volumes, number, m->u.volume.bytes, m->u.volume.owner);
    if (rc < 0) {
        answer(p, to, PRIVSEP_VOLUME_MAKE, number, rc);
        return;
    }
    p->volume_worker.requested[number] = *to;
    work_next(p);
}

void volume_remove_requested(struct privd *p, const struct reply_to *to,
                             const struct privsep_msg *m)
{
    uint32_t number = m->u.volume.number;
    enum volume_state state = volume_records_state(&p->volumes, number);
    int rc = state == VOLUME_NONE                                  ? -ENOENT
             : !is_of(p, number, m->u.volume.owner)                ? -EPERM
             : state != VOLUME_WHOLE || is_barred(p, number, NULL) ? -EBUSY
                                                                   : 0;

    if (rc == 0)
        rc = volume_records_enter(&p->volumes, number, VOLUME_REMOVING);
    if (rc < 0) {
        answer(p, to, PRIVSEP_VOLUME_REMOVE, number, rc);
        return;
    }
    p->volume_worker.requested[number] = *to;
    work_next(p);
}

/* From memory: no directory is read. */
void volume_list_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX; n++) {
        const struct volume_record *r = &p->volumes.all[n];
        struct privsep_msg event = {.op = PRIVSEP_VOLUME};

        if (r->state == VOLUME_NONE)
            continue;
        event.u.volume.number = n;
        event.u.volume.busy = r->state != VOLUME_WHOLE;
        event.u.volume.bytes = r->bytes;
        memcpy(event.u.volume.owner, r->owner, sizeof(event.u.volume.owner));
        if (privsep_server_send(p->server, to->peer, &event, NULL, 0) < 0)
            return;
    }
    answer(p, to, PRIVSEP_VOLUMES, 0, 0);
}

/* -- after a restart --------------------------------------------------------------------------- */

void volume_recover(struct privd *p)
{
    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX; n++) {
        enum volume_state state = volume_records_state(&p->volumes, n);
        enum volume_state next = volume_records_recovered(state, runtime_is_volume(p->rt, n));

        if (next == VOLUME_REMOVING)
            next = runtime_volume_remove(p->rt, n) == 0 ? VOLUME_NONE : VOLUME_WHOLE;
        if (next == state)
            continue;
        log_info("volume %u: %s", n, next == VOLUME_WHOLE ? "it is whole" : "it is not there");
        if (volume_records_enter(&p->volumes, n, next) < 0)
            log_error("volume %u: its record cannot be written", n);
    }
}
