/* The checks before a sandbox is made, in this order: is the server ready, is the request whole, is
 * there a place left for this tenant, may it have that policy, is the template there, is there a
 * place with filters, does the quota allow it. Only the last takes something (the rate of creates),
 * so that what is refused for another reason counts nowhere. Called by create.c. */

#include "core/create_check.h"

#include "base/share.h"
#include "core/build.h"
#include "core/ceiling.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/publish.h"
#include "core/quota.h"
#include "core/sandbox.h"
#include "core/sandbox_make.h"
#include "core/sandbox_network.h"
#include "core/snapshot.h"
#include "core/template.h"
#include "core/template_absent.h"
#include "core/tenant.h"
#include "core/volume.h"

#include <string.h>

#define REASON_MAX 200u

static enum err_code count_tenant(void *arg, const struct core_tenant *t, struct err *e)
{
    ++*(size_t *)arg;
    return ERR_OK;
}

/* Where more than half of the places are taken, and there are other tenants, one that holds as many
 * as are left gets no more: a place is there for another that holds few (the rule of base/share.h;
 * here one tenant alone may have all). */
static enum err_code check_share(struct core *c, const char *tenant, struct err *e)
{
    size_t max = c->config.max_sandboxes, n = c->tenants.charged[TENANT_SANDBOXES], tenants = 0;
    size_t held = tenant_held(c, tenant, TENANT_SANDBOXES);

    if (n <= max / 2 || max - n > held ||
        core_tenant_each(c, count_tenant, &tenants, e) != ERR_OK || tenants < 2)
        return ERR_OK;
    err_set(e, ERR_EXHAUSTED,
            "%zu of %zu sandboxes are there, %zu of them this tenant's: the rest is for others", n,
            max, held);
    err_hint(e, "end some, or raise `max` of [sandbox] in the settings, if the server is yours");
    return ERR_EXHAUSTED;
}

/* The few places of sandboxes whose programs may have filters, by the rule of base/share.h. */
static enum err_code check_filters_share(struct core *c, const char *tenant, struct err *e)
{
    const uint32_t filter_shares = privsep_filters_sandboxes();
    size_t used = c->tenants.charged[TENANT_FILTERS];
    size_t held = tenant_held(c, tenant, TENANT_FILTERS);

    if (share_leaves_space(filter_shares, used, held))
        return ERR_OK;
    err_set(
        e, ERR_EXHAUSTED,
        "%zu of %u sandboxes with \"seccompFilters\" are there, %zu of them this tenant's: that is "
        "its share, as their filters are from a pool of the whole host",
        used, filter_shares, held);
    err_hint(e, "end one of them, or create this one without");
    return ERR_EXHAUSTED;
}

static enum err_code check_request(struct core *c, const struct sandbox_request *r, struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code != ERR_OK)
        return code;
    if (!r->tenant || strlen(r->tenant) >= CORE_TENANT_SIZE)
        return err_set(e, ERR_INVALID, "the tenant's name is missing or too long");
    if (r->ttl_ms < 0 || (uint64_t)r->ttl_ms > c->config.max_ttl_ms)
        return err_set(e, ERR_INVALID, "a time to live of %lld s; at most %llu s are allowed",
                       (long long)r->ttl_ms / 1000,
                       (unsigned long long)c->config.max_ttl_ms / 1000u);
    if (r->auto_delete_ms < 0 || r->auto_delete_ms > CORE_AUTO_DELETE_MAX_MS)
        return err_set(e, ERR_INVALID, "a stopped sandbox is deleted after 0 to %lld ms",
                       (long long)CORE_AUTO_DELETE_MAX_MS);
    if (r->name && sandbox_name_is_taken(c, r->tenant, r->name))
        return err_set(e, ERR_EXISTS, "there is a sandbox with the name %s already", r->name);
    if (r->on_timeout == SANDBOX_ON_TIMEOUT_PAUSE && r->timeout_tier == SANDBOX_TIER_MEMORY &&
        r->limits.filters)
        return err_set(e, ERR_INVALID,
                       "seccompFilters: not with autoPauseTier \"memory\", as the memory of such a "
                       "sandbox cannot be kept; autoPauseOrFiles keeps its files alone");
    if (r->on_timeout == SANDBOX_ON_TIMEOUT_PAUSE && r->timeout_tier != SANDBOX_TIER_FROZEN &&
        (code = keep_check(c, e)) != ERR_OK)
        return code;
    if (r->to_disk_ms > 0 && (code = keep_check(c, e)) != ERR_OK)
        return code;
    if (c->tenants.charged[TENANT_SANDBOXES] >= c->config.max_sandboxes) {
        err_set(e, ERR_UNAVAILABLE, "%zu of %u sandboxes are there: no more are allowed",
                (size_t)c->tenants.charged[TENANT_SANDBOXES], c->config.max_sandboxes);
        err_hint(e,
                 "end some, or raise `max` of [sandbox] in the settings, if the server is yours");
        return ERR_UNAVAILABLE;
    }
    return check_share(c, r->tenant, e);
}

/* The last check: a call refused for another reason is no create. */
static enum err_code take_quota(struct core *c, const struct sandbox_request *r,
                                const struct template_info *requested, struct err *e)
{
    const struct privsep_limits limits = sandbox_limits(c, r, requested);
    struct tenant *t = tenant_get(c, r->tenant);
    enum err_code code = t ? quota_take_create(t, &limits, e)
                           : err_set(e, ERR_UNAVAILABLE, "memory is out");

    tenant_unref(t);
    return code;
}

/* The template that clients see it was made of: for a built template its id, as its snapshot is
 * removed with the next build. */
static const char *made_of(struct core *c, const struct sandbox_request *r,
                           const struct snapshot *s)
{
    const struct build *b = s->kind == SNAPSHOT_OF_BUILD && r->template_name
                                ? core_build_named(c, s->tenant, r->template_name)
                                : NULL;

    if (r->made_of)
        return r->made_of;
    return b ? b->template_id : s->id;
}

/* A template of a build that is not ready is none yet: the error says how far the build is. */
static enum err_code find_template(struct core *c, const struct sandbox_request *r,
                                   const struct template_info **requested,
                                   const struct template_info **used, struct err *e)
{
    enum err_code code = templates_resolve(c, r->tenant, r->template_name, requested, used, e);
    const struct build *b = code == ERR_NOT_FOUND && r->template_name
                                ? core_build_of_template(c, r->tenant, r->template_name)
                                : NULL;

    if (code == ERR_NOT_FOUND && (!b || b->state == BUILD_READY))
        return template_absent(c, r->tenant, r->template_name, e);
    if (!b)
        return code;
    if (b->state == BUILD_ERROR)
        return err_set(e, code, "template '%.100s' was not built: %.*s", b->name,
                       (int)MIN(strcspn(b->reason, "\n"), REASON_MAX), b->reason);
    return err_set(e, code, "template '%.100s' is not ready: %s", b->name,
                   b->state == BUILD_WAITING ? "its build was not started" : "it is being built");
}

/* Files and memory of another sandbox, as long as that is paused. */
static enum err_code resolve_memory(struct core *c, struct sandbox_request *r,
                                    const struct template_info **used, struct err *e)
{
    struct sandbox_obj *source = NULL;
    enum err_code code = sandbox_visible(c, r->tenant, r->memory_of, &source, e);

    if (code == ERR_OK && !sandbox_has_memory_on_disk(source))
        code = err_set(e, ERR_CONFLICT, "sandbox %s is not paused with its memory on the disk",
                       r->memory_of);
    if (code != ERR_OK)
        return code;
    *used = templates_entry(c, source->s.template_id);
    r->limits = source->s.limits; /* its memory fits no other */
    r->made_of = r->made_of ? r->made_of : source->s.template_requested;
    return *used ? ERR_OK
                 : err_set(e, ERR_UNAVAILABLE, "template %s, which its files lie on, is not there",
                           source->s.template_id);
}

/* The files that it begins with: a template, or a snapshot with the template that it lies on. */
static enum err_code resolve(struct core *c, struct sandbox_request *r,
                             const struct snapshot **snapshot,
                             const struct template_info **requested,
                             const struct template_info **used, struct err *e)
{
    if (r->memory_of) {
        enum err_code code = resolve_memory(c, r, used, e);

        *requested = *used;
        return code;
    }
    const struct snapshot *s = r->snapshot ? snapshots_ready(c, r->snapshot)
                                           : core_template_snapshot(c, r->tenant, r->template_name);

    if (r->snapshot && (!s || strcmp(s->tenant, r->tenant) != 0))
        return err_set(e, ERR_NOT_FOUND, "the snapshot is gone");
    if (!s)
        return find_template(c, r, requested, used, e);
    *snapshot = s;
    *requested = *used = templates_entry(c, s->template_id);
    if (!*used)
        return err_set(e, ERR_UNAVAILABLE, "template %s, which snapshot %s lies on, is not there",
                       s->template_id, s->id);
    r->limits = sandbox_limits_or(&r->limits, &s->limits);
    r->made_of = made_of(c, r, s);
    return ERR_OK;
}

enum err_code create_check(struct core *c, struct sandbox_request *r,
                           const struct snapshot **snapshot, const struct template_info **requested,
                           const struct template_info **used, struct err *e)
{
    enum err_code code = check_request(c, r, e);

    if (code == ERR_OK)
        code = sandbox_check_policy(c, r->tenant, r->policy, r->credentials, e);
    if (code == ERR_OK)
        code = resolve(c, r, snapshot, requested, used, e);
    if (code == ERR_OK && (r->limits.filters || (*requested)->limits.filters))
        code = check_filters_share(c, r->tenant, e);
    if (code == ERR_OK)
        code = volumes_check(c, r->tenant, NULL, r->volumes, e);
    return code == ERR_OK ? take_quota(c, r, *requested, e) : code;
}
