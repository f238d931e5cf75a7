/* Making and removing volumes: rows of the store, objects in a list, newest first, and the requests
 * to privd. Called by api, by create.c and keep.c for what a sandbox mounts, and by core.c after
 * KEPTS. */

#include "core/volume.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/plain_name.h"
#include "base/share.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/quota.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/store_volume.h"
#include "core/volume_content.h"
#include "core/volume_obj.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REMOVE_AGAIN_MS 5000u /* privd failed */

/* -- entering and leaving ---------------------------------------------------------------------- */

static void on_again(struct timer *t);
static void on_unserved(struct volume_obj *o);

/* NULL: memory is out. */
static struct volume_obj *enter(struct core *c, const struct volume *v)
{
    struct volume_obj *o = calloc(1, sizeof(*o)), **at = &c->volumes;

    if (!o)
        return NULL;
    o->tenant = tenant_get(c, v->tenant);
    if (!o->tenant) {
        free(o);
        return NULL;
    }
    o->core = c;
    o->v = *v;
    o->v.tenant = o->tenant->name;
    o->again.fire = on_again;
    o->idle.fire = volume_content_on_idle;
    o->unserved = on_unserved;
    tenant_charge(o->tenant, TENANT_VOLUMES, 1, &o->charge);
    tenant_charge(o->tenant, TENANT_DISK_BYTES, v->bytes, &o->disk);
    while (*at && (*at)->v.made_real_ms > v->made_real_ms)
        at = &(*at)->next;
    o->next = *at;
    *at = o;
    return o;
}

static void leave(struct volume_obj *o)
{
    struct volume_obj **at = &o->core->volumes;
    struct err why;

    err_set(&why, ERR_NOT_FOUND, "there is no volume '%.100s'", o->v.name);
    volume_content_free(o, &why);
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    timers_cancel(&o->core->timers, &o->again);
    tenant_refund(&o->charge);
    tenant_refund(&o->disk);
    tenant_unref(o->tenant);
    free(o);
}

enum err_code volumes_adopt(void *core, const struct volume *v, struct err *e)
{
    return enter(core, v) ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

/* Each is told once. */
static void answer(struct volume_obj *o, const struct err *why)
{
    core_volume_cb made = o->made;
    core_done_cb removed = o->removed;

    o->made = NULL;
    o->removed = NULL;
    if (made)
        made(o->arg, why ? NULL : &o->v, why);
    if (removed)
        removed(o->arg, why);
}

void volumes_free(struct core *c, const struct err *why)
{
    for (struct volume_obj *o = c->volumes; o; o = o->next) {
        answer(o, why);
        volume_content_free(o, why);
    }
    while (c->volumes)
        leave(c->volumes);
}

static void forget(struct volume_obj *o)
{
    struct err e;

    if (store_volume_delete(o->core->store, o->v.id, &e) != ERR_OK)
        log_error("volume %s: %s", o->v.id, e.text);
    leave(o);
}

static enum err_code set_state(struct volume_obj *o, enum volume_state state, struct err *e)
{
    enum err_code code = store_volume_set_state(o->core->store, o->v.id, state, e);

    if (code == ERR_OK)
        o->v.state = state;
    return code;
}

/* -- removing ---------------------------------------------------------------------------------- */

static void send_remove(struct volume_obj *o);

static void on_again(struct timer *t)
{
    send_remove(CONTAINER_OF(t, struct volume_obj, again));
}

/* It was made but not confirmed, or removed but for privd: it is tried again. */
static void remove_later(struct volume_obj *o, int64_t status)
{
    struct err why;

    call_privd_err(&why, status, "removing the volume");
    answer(o, &why);
    if (!call_is_channel_error(status)) /* else the next list tells */
        timers_set(&o->core->timers, &o->again, clock_mono_ms() + REMOVE_AGAIN_MS);
}

static void on_removed(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct volume_obj *o = volume_get(c, id);

    if (!o)
        return;
    o->requested = false;
    if (keep_is_gone(status)) {
        log_info("volume %s: removed", id);
        answer(o, NULL);
        forget(o);
    } else {
        remove_later(o, status);
    }
}

static void send_remove(struct volume_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_VOLUME_REMOVE};
    int64_t rc;

    m.u.volume.number = o->v.number;
    keep_owner(o->v.id, m.u.volume.owner);
    rc = call_privd(o->core, o->v.id, &m, on_removed, NULL);
    o->requested = rc >= 0;
    if (rc < 0)
        remove_later(o, rc);
}

/* A removal has waited for that. */
static void on_unserved(struct volume_obj *o)
{
    if (o->v.state == VOLUME_REMOVING && !o->requested && !timer_armed(&o->again))
        send_remove(o);
}

struct later {
    core_volume_cb made;
    void *arg;
    struct err why;
    struct deferred later;
};

static void answer_later(void *arg)
{
    CLEANUP_FREE struct later *t = arg;

    t->made(t->arg, NULL, &t->why);
}

static void refuse_making(struct core *c, core_volume_cb made, void *arg, const struct err *why)
{
    struct later *t = RESERVE_NEW(&c->reserve, struct later);

    *t = (struct later){made, arg, *why};
    core_defer(c, &t->later, answer_later, t);
}

static enum err_code check_unused(struct core *c, const struct volume_obj *o, struct err *e)
{
    const struct sandbox_obj *user = volume_user(o, NULL, NULL);

    if (!user)
        return ERR_OK;
    err_set(e, ERR_CONFLICT, "volume '%.100s' is in use by sandbox %s, which is %s", o->v.name,
            user->s.id, sandbox_state_text(user));
    err_hint(e, "end that sandbox first; one that is paused needs its volumes when it is resumed");
    return ERR_CONFLICT;
}

void core_volume_remove(struct core *c, const char *tenant, const char *name, core_done_cb done,
                        void *arg)
{
    struct volume_obj *o = volume_find(c, tenant, name, true);
    struct err e;
    enum err_code code = core_check_ready(c, &e);

    if (code == ERR_OK && !o)
        code = volume_missing(name, &e);
    if (code == ERR_OK)
        code = check_unused(c, o, &e);
    if (code == ERR_OK)
        code = set_state(o, VOLUME_REMOVING, &e);
    if (code != ERR_OK) {
        core_defer_refusal(c, done, arg, &e);
        return;
    }
    o->removed = done;
    o->arg = arg;
    if (!volume_content_end(o))
        send_remove(o);
}

/* -- making ------------------------------------------------------------------------------------ */

static void on_made(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg)
{
    struct volume_obj *o = volume_get(c, id);
    struct err e;

    if (!o)
        return;
    o->requested = false;
    if (status == 0 && set_state(o, VOLUME_READY, &e) == ERR_OK) {
        log_info("volume %s: made", id);
        answer(o, NULL);
        return;
    }
    if (status < 0)
        call_privd_err(&e, status, "making the volume");
    log_warn("volume %s: %s", id, e.text);
    answer(o, &e);
    if (status == 0)
        send_remove(o);
    else if (!call_is_channel_error(status)) /* else the next list tells what there is */
        forget(o);
}

/* Numbers of rows in any state are taken, and those that privd has and no row names. */
static enum err_code choose_number(struct core *c, const char *tenant, uint32_t *out, struct err *e)
{
    uint64_t used = c->tenants.charged[TENANT_VOLUMES];
    uint64_t held = tenant_held(c, tenant, TENANT_VOLUMES);
    bool taken[PRIVSEP_VOLUMES_MAX + 1] = {false};

    if (!share_leaves_space(PRIVSEP_VOLUMES_MAX, used, held)) {
        err_set(
            e, ERR_EXHAUSTED,
            "%llu volumes are there, %llu of them this tenant's, of %d on this server: that is its "
            "share",
            (unsigned long long)used, (unsigned long long)held, PRIVSEP_VOLUMES_MAX);
        err_hint(e, "remove some first");
        return ERR_EXHAUSTED;
    }
    for (const struct volume_obj *o = c->volumes; o; o = o->next)
        taken[o->v.number] = true;
    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX; n++)
        if (!taken[n] && c->volumes_listed[n].seen == KEPT_SEEN_NONE) {
            *out = n;
            return ERR_OK;
        }
    return err_set(e, ERR_EXHAUSTED, "every number of a volume is taken on this server");
}

static enum err_code check_create(struct core *c, const char *tenant, const char *name,
                                  uint64_t bytes, struct err *e)
{
    enum err_code code = core_check_ready(c, e);
    struct tenant *t;

    if (code == ERR_OK && !plain_name_is_label(name, CORE_VOLUME_NAME_SIZE - 1))
        code = err_set(
            e, ERR_INVALID,
            "\"%.100s\" is no name of a volume: at most %d letters, digits, '.', '_' and "
            "'-', the first of them a letter or digit",
            name, CORE_VOLUME_NAME_SIZE - 1);
    if (code == ERR_OK && (bytes < CORE_VOLUME_BYTES_MIN || bytes > CORE_VOLUME_BYTES_MAX))
        code = err_set(e, ERR_INVALID, "a volume of %llu bytes: %llu to %llu are possible",
                       (unsigned long long)bytes, (unsigned long long)CORE_VOLUME_BYTES_MIN,
                       (unsigned long long)CORE_VOLUME_BYTES_MAX);
    if (code == ERR_OK)
        code = keep_check(c, e);
    if (code == ERR_OK && volume_find(c, tenant, name, false))
        code = err_set(e, ERR_EXISTS, "there is a volume '%.100s' already", name);
    if (code != ERR_OK)
        return code;
    t = tenant_get(c, tenant);
    code = t ? quota_check_volume(t, bytes, e) : err_set(e, ERR_UNAVAILABLE, "memory is out");
    tenant_unref(t);
    return code;
}

static enum err_code begin(struct core *c, const struct volume *v, core_volume_cb done, void *arg,
                           struct err *e)
{
    struct privsep_msg m = {.op = PRIVSEP_VOLUME_MAKE};
    enum err_code code = store_volume_insert(c->store, v, e);
    struct volume_obj *o = code == ERR_OK ? enter(c, v) : NULL;
    int64_t rc;

    if (code != ERR_OK)
        return code;
    if (!o) {
        store_volume_delete(c->store, v->id, NULL);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    m.u.volume.number = v->number;
    m.u.volume.bytes = v->bytes;
    keep_owner(v->id, m.u.volume.owner);
    rc = call_privd(c, v->id, &m, on_made, NULL);
    if (rc < 0) {
        forget(o);
        return call_privd_err(e, rc, "making the volume");
    }
    o->requested = true;
    o->made = done;
    o->arg = arg;
    return ERR_OK;
}

void core_volume_create(struct core *c, const char *tenant, const char *name, uint64_t bytes,
                        core_volume_cb done, void *arg)
{
    struct volume v = {.tenant = tenant,
                       .bytes = bytes ? bytes : c->config.limits.disk_bytes,
                       .made_real_ms = clock_real_ms()};
    struct err e;
    enum err_code code = check_create(c, tenant, name, v.bytes, &e);

    (void)snprintf(v.name, sizeof(v.name), "%s", name);
    ids_sandbox(v.id);
    v.id[0] = 'v';
    if (code == ERR_OK)
        code = choose_number(c, tenant, &v.number, &e);
    if (code == ERR_OK)
        code = begin(c, &v, done, arg, &e);
    if (code != ERR_OK)
        refuse_making(c, done, arg, &e);
}

/* -- after a restart --------------------------------------------------------------------------- */

/* Whether privd has it: another's volume by that number does not count. */
static bool is_there(const struct volume_obj *o)
{
    static const uint8_t unknown[PRIVSEP_OWNER_SIZE];
    const struct kept_listed *t = &o->core->volumes_listed[o->v.number];
    uint8_t owner[PRIVSEP_OWNER_SIZE];

    keep_owner(o->v.id, owner);
    return t->seen != KEPT_SEEN_NONE && (memcmp(t->owner, owner, sizeof(owner)) == 0 ||
                                         memcmp(t->owner, unknown, sizeof(unknown)) == 0);
}

/* Volumes that were not confirmed are removed; those that privd does not have are forgotten. */
static void reconcile(struct volume_obj *o)
{
    struct err e;

    if (!is_there(o)) {
        if (o->v.state == VOLUME_READY)
            log_error("volume %s: its files are not there any more", o->v.id);
        forget(o);
        return;
    }
    if (o->v.state == VOLUME_READY)
        return;
    if (o->v.state == VOLUME_MAKING && set_state(o, VOLUME_REMOVING, &e) != ERR_OK)
        log_error("volume %s: %s", o->v.id, e.text);
    send_remove(o);
}

/* Entries that are left in the list have no row. Their files are a tenant's: they stay, and so does
 * the number. */
static void leave_strays(struct core *c)
{
    for (const struct volume_obj *o = c->volumes; o; o = o->next)
        if (is_there(o))
            c->volumes_listed[o->v.number].seen = KEPT_SEEN_NONE;
    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX; n++)
        if (c->volumes_listed[n].seen != KEPT_SEEN_NONE)
            log_error("volume %.*s, number %u, is on the disk, and the store does not know of it: "
                      "it is left alone",
                      PRIVSEP_OWNER_SIZE, (const char *)c->volumes_listed[n].owner, n);
}

static void on_volumes(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct volume_obj *next;

    if (status < 0) {
        log_error("privd does not list its volumes: %s", strerror(-status));
        return;
    }
    for (struct volume_obj *o = c->volumes; o; o = next) {
        next = o->next;
        if (!o->requested && !timer_armed(&o->again))
            reconcile(o);
    }
    leave_strays(c);
}

void volumes_request(struct core *c)
{
    struct privsep_msg m = {.op = PRIVSEP_VOLUMES};

    memset(c->volumes_listed, 0, sizeof(c->volumes_listed));
    (void)call_privd(c, "", &m, on_volumes, NULL);
}

void volumes_on_event(struct core *c, const struct privsep_msg *m)
{
    uint32_t n = m->u.volume.number;

    if (n < 1 || n > PRIVSEP_VOLUMES_MAX)
        return;
    c->volumes_listed[n].seen = m->u.volume.busy ? KEPT_SEEN_BUSY : KEPT_SEEN_WHOLE;
    memcpy(c->volumes_listed[n].owner, m->u.volume.owner, sizeof(c->volumes_listed[n].owner));
}
