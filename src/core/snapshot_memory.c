/* Whose the number of a memory is stands in one row at a time: it leaves the sandbox's before it is
 * written to the snapshot's, and the snapshot's before it is dropped. A number in between is in no
 * row, so that the next start drops it (kept_numbers.c). */

#include "core/snapshot_memory.h"

#include "base/log.h"
#include "core/core_internal.h"
#include "core/keep.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core/snapshot_internal.h"
#include "core/store_sandbox.h"
#include "core/store_snapshot.h"

#include <stdio.h>
#include <string.h>

void snapshot_memory_charge(struct snapshot_obj *o)
{
    const uint64_t n = o->s.memory ? 1 : 0;

    tenant_charge(o->tenant, TENANT_KEPT, n, &o->memory_charge);
    tenant_charge(o->tenant, TENANT_SNAPSHOTS, n, &o->memory_counted);
}

void snapshot_memory_lose(struct snapshot_obj *o)
{
    const struct snapshot was = o->s;
    struct err e;

    if (!was.memory)
        return;
    o->s.memory = 0;
    o->s.memory_of[0] = '\0';
    if (store_snapshot_memory(o->core->store, &o->s, &e) != ERR_OK)
        log_error("snapshot %s: %s", o->s.id, e.text); /* the next start finds it gone */
    tenant_refund(&o->memory_charge);
    tenant_refund(&o->memory_counted);
    keep_drop_left(o->core, was.memory_of, was.memory);
}

void snapshot_memory_drop(struct core *c, const char *snapshot, uint32_t number)
{
    struct snapshot_obj *o = snapshot_get(c, snapshot);

    if (o && o->s.memory == number)
        snapshot_memory_lose(o);
}

void snapshot_memory_reconcile(struct snapshot_obj *o)
{
    const struct kepts *k = &o->core->kepts;

    if (!o->s.memory)
        return;
    if (keep_seen(o->core, o->s.memory, o->s.memory_of) != KEPT_SEEN_NONE &&
        !k->listed[o->s.memory].without_memory)
        return;
    log_warn("snapshot %s: its memory is not there any more; sandboxes of it begin with its files",
             o->s.id);
    snapshot_memory_lose(o);
}

static enum err_code find(struct core *c, const char *tenant, const char *snapshot,
                          const char *sandbox, struct snapshot_obj **s, struct sandbox_obj **o,
                          struct err *e)
{
    *s = snapshot_get(c, snapshot);
    *o = sandbox_get(c, tenant, sandbox);
    if (!*s || (*s)->s.state != SNAPSHOT_READY || strcmp((*s)->s.tenant, tenant) != 0)
        return err_set(e, ERR_NOT_FOUND, "the snapshot was removed meanwhile");
    if (!*o || !sandbox_has_memory_on_disk(*o))
        return err_set(e, ERR_NOT_FOUND, "the sandbox that its memory is of was changed meanwhile");
    return ERR_OK;
}

enum err_code snapshot_memory_take(struct core *c, const char *tenant, const char *snapshot,
                                   const char *sandbox, struct err *e)
{
    struct snapshot_obj *s;
    struct sandbox_obj *o;
    enum err_code code = find(c, tenant, snapshot, sandbox, &s, &o, e);
    struct snapshot changed;

    if (code == ERR_OK)
        code = store_sandbox_delete(c->store, o->s.id, e);
    if (code != ERR_OK)
        return code;
    snapshot_memory_lose(s); /* an earlier one */
    changed = s->s;
    changed.memory = o->s.kept;
    (void)snprintf(changed.memory_of, sizeof(changed.memory_of), "%s", o->s.id);
    code = store_snapshot_memory(c->store, &changed, e);
    if (code == ERR_OK)
        s->s = changed;
    else
        keep_drop_left(c, o->s.id, o->s.kept);
    o->s.kept = 0;
    o->end_reason = "killed";
    lifecycle_ended(o, "what it kept is a template's");
    snapshot_memory_charge(s);
    return code;
}
