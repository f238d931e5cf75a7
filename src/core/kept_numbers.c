/* Which numbers of kept files are free, and what no row names is dropped: privd says what there is
 * (kept_list.c). A number is in use from the row that is written before KEEP or COPY
 * until the row of a sandbox that runs again, or of what was dropped. */

#include "core/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/tenant.h"

#include <errno.h>
#include <string.h>

#define STRAYS_AGAIN_MS 5000u

enum err_code keep_check(const struct core *c, struct err *e)
{
    if (c->kepts.can)
        return ERR_OK;
    err_set(e, ERR_UNIMPLEMENTED,
            "this server keeps no files without their processes, as its state disk is memory, not "
            "btrfs: volumes, snapshots, forks, rollbacks, archives and pauses other than frozen "
            "ones are not possible");
    err_hint(e, "`cay pause` (frozen) is; [state] disk_backend = btrfs in the settings, `cay "
                "down` and `cay up` make the rest possible");
    return ERR_UNIMPLEMENTED;
}

bool core_keeps_files(const struct core *c, struct err *why)
{
    struct err ignored;

    return keep_check(c, why ? why : &ignored) == ERR_OK;
}

/* -- numbers ----------------------------------------------------------------------------------- */

static void mark_all(const struct core *c, bool *named)
{
    for (size_t i = 0; i < c->registry.n; i++)
        named[c->registry.order[i]->s.kept] = true;
    snapshots_mark(c, named);
}

/* The number of a sandbox that ends is in use until privd has dropped its files. */
enum err_code keep_choose_number(struct core *c, const char *tenant, uint32_t *out, struct err *e)
{
    uint64_t used, held;
    bool taken[PRIVSEP_KEPT_MAX + 1] = {false};

    do {
        used = c->tenants.charged[TENANT_KEPT];
        held = tenant_held(c, tenant, TENANT_KEPT);
    } while (!share_leaves_space(PRIVSEP_KEPT_MAX, used, held) && c->kept_gives_way &&
             c->kept_gives_way(c, tenant));
    if (!share_leaves_space(PRIVSEP_KEPT_MAX, used, held)) {
        err_set(e, ERR_EXHAUSTED,
                "%llu snapshots and sandboxes paused with their files alone are kept, %llu of them "
                "this tenant's, of %d on this server: that is its share",
                (unsigned long long)used, (unsigned long long)held, PRIVSEP_KEPT_MAX);
        err_hint(e, "delete some first");
        return ERR_EXHAUSTED;
    }
    mark_all(c, taken);
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        if (taken[n] || c->kepts.stray[n])
            continue;
        *out = n;
        return ERR_OK;
    }
    return err_set(e, ERR_UNAVAILABLE, "kept files are still being removed; try again");
}

/* -- what no row names ------------------------------------------------------------------------- */

static void drop_stray(struct core *c, uint32_t n);

/* While a connection is new KEPTS tells of them; then they are dropped without this. */
static void on_strays_again(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct core, kepts.strays_again);

    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (c->kepts.stray[n] && c->kepts.listed[n].seen == KEPT_SEEN_WHOLE)
            drop_stray(c, n);
}

/* privd failed, or memory is out; a channel that broke is followed by KEPTS. */
static void drop_strays_later(struct core *c, int status)
{
    if (call_is_channel_error(status))
        return;
    c->kepts.strays_again.fire = on_strays_again;
    timers_set(&c->timers, &c->kepts.strays_again, clock_mono_ms() + STRAYS_AGAIN_MS);
}

static void on_stray_dropped(struct core *c, const char *id, int status,
                             const struct privsep_msg *m, int *fds, size_t n_fds, void *arg)
{
    uint32_t n = (uint32_t)(uintptr_t)arg;

    c->kepts.stray[n] = !keep_is_gone(status);
    if (!c->kepts.stray[n])
        return;
    if (!call_is_channel_error(status))
        log_warn("kept files %u, which no sandbox has, are not removed: %s; trying again", n,
                 strerror(-status));
    drop_strays_later(c, status);
}

/* Of its owner, as told. */
static void drop_stray(struct core *c, uint32_t n)
{
    struct privsep_msg m = {.op = PRIVSEP_DROP};
    int64_t rc;

    m.u.kept.number = n;
    memcpy(m.u.kept.owner, c->kepts.listed[n].owner, sizeof(m.u.kept.owner));
    rc = call_privd(c, "", &m, on_stray_dropped, (void *)(uintptr_t)n);
    if (rc < 0)
        drop_strays_later(c, (int)rc);
}

void keep_drop_left(struct core *c, const char *id, uint32_t number)
{
    struct kepts *k = &c->kepts;

    if (!number)
        return;
    k->listed[number].seen = KEPT_SEEN_WHOLE;
    keep_owner(id, k->listed[number].owner);
    k->stray[number] = true;
    drop_stray(c, number);
}

void keep_drop_strays(struct core *c)
{
    bool named[PRIVSEP_KEPT_MAX + 1] = {false};

    mark_all(c, named);
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        const struct kept_listed *t = &c->kepts.listed[n];

        c->kepts.stray[n] = t->seen != KEPT_SEEN_NONE && !named[n];
        if (t->seen != KEPT_SEEN_WHOLE || named[n])
            continue;
        log_warn("cay-privd keeps files by number %u that nothing has: they are removed", n);
        drop_stray(c, n);
    }
}
