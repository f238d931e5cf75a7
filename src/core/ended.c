#include "core/ended.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/counters.h"
#include "core/sandbox.h"
#include "core/store_ended.h"

#include <stdio.h>
#include <string.h>

void ended_write(struct sandbox_obj *o)
{
    struct store_ended row = {.started_real_ms = o->s.started_real_ms,
                              .ended_real_ms = clock_real_ms()};
    struct err e;

    if (!o->announced || o->end_written)
        return;
    o->end_written = true;
    snprintf(row.id, sizeof(row.id), "%s", o->s.id);
    snprintf(row.template_id, sizeof(row.template_id), "%s", core_sandbox_template_id(&o->s));
    snprintf(row.reason, sizeof(row.reason), "%s", o->end_reason ? o->end_reason : "unknown");
    if (store_ended_put(o->core->store, o->s.tenant, &row, &e) != ERR_OK)
        log_warn("sandbox %s: %s", o->s.id, e.text);
}

/* The literal of a word; NULL: there is none. */
static const char *literal(const char *word)
{
    const char *reason;

    for (size_t i = 0; (reason = counters_reason(i)); i++)
        if (strcmp(reason, word) == 0)
            return reason;
    return NULL;
}

void ended_take_up(struct sandbox_obj *o)
{
    struct store_ended row;
    struct err e;
    enum err_code code = store_ended_find(o->core->store, o->s.tenant, o->s.id, clock_real_ms(),
                                          &row, &e);

    if (code == ERR_OK)
        o->end_reason = literal(row.reason);
    else if (code != ERR_NOT_FOUND)
        log_warn("sandbox %s: %s", o->s.id, e.text);
    o->end_written = code == ERR_OK;
}

struct each {
    void (*fn)(void *arg, const struct core_ended *one);
    void *arg;
};

static void hand_on(void *arg, const struct store_ended *row)
{
    const struct each *each = arg;
    const struct core_ended one = {.id = row->id,
                                   .template_id = row->template_id,
                                   .reason = row->reason,
                                   .started_real_ms = row->started_real_ms,
                                   .ended_real_ms = row->ended_real_ms};

    each->fn(each->arg, &one);
}

enum err_code core_ended_each(struct core *c, const char *tenant, size_t limit,
                              void (*fn)(void *arg, const struct core_ended *one), void *arg,
                              struct err *e)
{
    struct each each = {.fn = fn, .arg = arg};

    return store_ended_each(c->store, tenant, clock_real_ms(), limit, hand_on, &each, e);
}

enum err_code core_sandbox_absent(struct core *c, const char *tenant, const char *id, struct err *e)
{
    char at[CLOCK_RFC3339_SIZE];
    struct store_ended row;
    struct err why;

    if (!tenant || store_ended_find(c->store, tenant, id, clock_real_ms(), &row, &why) != ERR_OK)
        return err_set(e, ERR_NOT_FOUND, "there is no sandbox '%.32s' (it may have ended)", id);
    clock_format_rfc3339(row.ended_real_ms, at);
    return err_set(e, ERR_NOT_FOUND, "sandbox '%s' has ended: %s, at %s", row.id, row.reason, at);
}
