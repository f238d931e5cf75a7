/* Snapshots and forks as E2B's SDKs ask for them. A snapshot's id is a template's for a create, and
 * DELETE of a template (e2b_template.c) removes it. Of files alone: docs/snapshots.md. */
#include "api/e2b.h"
#include "core/fork.h"
#include "core/snapshot.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define LIST_MAX 100

static json_t *names_json(const struct snapshot *s)
{
    return *s->name ? json_pack("[o]", json_sprintf("%s:default", s->name)) : json_array();
}

json_t *e2b_snapshot_json(const struct snapshot *s)
{
    return json_pack("{s:s, s:o, s:s, s:s, s:o, s:b}", "snapshotID", s->id, "names", names_json(s),
                     "sandboxID", s->sandbox, "templateID", s->template_id, "createdAt",
                     api_json_time(s->made_real_ms), "memory", s->memory != 0);
}

static void made(void *arg, const struct snapshot *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 201, e2b_snapshot_json(s));
    else
        e2b_fail(call, why);
}

void e2b_snapshot_create(struct api_call *call)
{
    const char *name = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_str(call->body, "name", NULL, JSON_OPTIONAL, CORE_SNAPSHOT_NAME_SIZE, &name, &e) !=
        ERR_OK)
        api_fail_err(call, &e);
    else
        core_snapshot_create(call->core, call->who.tenant, call->params[0], name, SNAPSHOT_PLAIN,
                             made, call);
}

/* -- the list ---------------------------------------------------------------------------------- */

struct page {
    json_t *items;
    size_t limit;
    char after[IDS_SANDBOX_SIZE]; /* "": from the beginning */
    bool skipping, more;
    char last[IDS_SANDBOX_SIZE];
};

static bool add(void *arg, const struct snapshot *s)
{
    struct page *p = arg;

    if (p->skipping) {
        p->skipping = strcmp(s->id, p->after) != 0;
        return true;
    }
    if (json_array_size(p->items) >= p->limit) {
        p->more = true;
        return false;
    }
    json_array_append_new(p->items, e2b_snapshot_json(s));
    memcpy(p->last, s->id, sizeof(p->last));
    return true;
}

/* The token is the id of the last one; where that is gone by now the list is at its end. */
void e2b_snapshot_list(struct api_call *call)
{
    char sandbox[IDS_SANDBOX_SIZE], name[CORE_SNAPSHOT_NAME_SIZE + 16];
    struct page p = {.limit = LIST_MAX};
    int64_t limit = LIST_MAX;

    if (!api_call_query(call, "sandboxID", sandbox, sizeof(sandbox)) ||
        !api_call_query(call, "name", name, sizeof(name)) ||
        !api_call_query(call, "nextToken", p.after, sizeof(p.after)) ||
        !api_call_query_int(call, "limit", 1, LIST_MAX, &limit))
        return;
    if (p.after[0] && !ids_is_snapshot(p.after)) {
        api_fail(call, 400, "the query parameter \"nextToken\" is none of this list's");
        return;
    }
    p.limit = (size_t)limit;
    p.skipping = p.after[0] != '\0';
    p.items = json_array();
    core_snapshot_each(call->core, call->who.tenant, sandbox, name, add, &p);
    if (p.more)
        api_header_add(call, "X-Next-Token", p.last);
    api_reply_json(call, 200, p.items);
}

/* -- forks ------------------------------------------------------------------------------------- */

static json_t *fork_itself(struct api_call *call, const struct core_fork *f)
{
    const struct sandbox *s = *f->id ? core_sandbox_find(call->core, call->who.tenant, f->id)
                                     : NULL;
    char message[sizeof(f->why.text) + sizeof(f->why.hint) + 4];

    if (s)
        return json_pack("{s:o}", "sandbox", e2b_sandbox_json(call, s));
    if (*f->id)
        return json_pack("{s:{s:i, s:s}}", "error", "code", 404, "message",
                         "the sandbox has ended already");
    (void)snprintf(message, sizeof(message), "%s%s%s", f->why.text, f->why.hint[0] ? "; " : "",
                   f->why.hint);
    return json_pack("{s:{s:i, s:s}}", "error", "code", api_status_of(f->why.code), "message",
                     message);
}

/* sourceError is not E2B's: its answer has no place for what became of the source. */
static json_t *fork_json(struct api_call *call, const struct core_fork *f)
{
    json_t *out = fork_itself(call, f);

    if (f->source)
        json_object_set_new(out, "sourceError", json_string(f->source->text));
    return out;
}

static void forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct api_call *call = arg;
    json_t *out = json_array();

    for (size_t i = 0; !why && i < n; i++)
        json_array_append_new(out, fork_json(call, &forks[i]));
    e2b_reply(call, 201, out, why);
}

void e2b_sandbox_fork(struct api_call *call)
{
    int64_t count = 1, seconds = E2B_TIMEOUT_V1_MS / 1000;
    int64_t most_s = (int64_t)(api_config_of(call->api)->max_ttl_ms / 1000);
    bool memory = false;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_int(call->body, "count", NULL, JSON_OPTIONAL, 1, CORE_FORKS_MAX, &count, &e) !=
            ERR_OK ||
        json_get_int(call->body, "timeout", NULL, JSON_OPTIONAL, 1, most_s, &seconds, &e) !=
            ERR_OK ||
        json_get_bool(call->body, "memory", NULL, JSON_OPTIONAL, &memory, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_fork(call->core, call->who.tenant, call->params[0],
                          &(struct core_fork_request){
                              .count = (size_t)count, .memory = memory, .ttl_ms = seconds * 1000},
                          forked, call);
}
