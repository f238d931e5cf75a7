/* The steps of a dump and of a restore that a pause with the files does not have. keep.c begins
 * both, and has the steps before and after; this decides what each answer of the agent's and
 * privd's means, and when it is asked again.
 *
 * An agent that is prepared refuses all else until it is told to go on, or half a minute is over.
 * Where no answer of the agent's tells whether it is, or a program ended in between, DUMP is sent,
 * and its answer decides. After each DUMP that did not end the sandbox its agent is told to go on,
 * before any caller hears of it: from then on it serves. */

#include "core/dump.h"

#include "base/clock.h"
#include "base/log.h"
#include "contract/proto.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/create_error.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/logs.h"
#include "core/pause_internal.h"
#include "core/sandbox.h"
#include "core/sockets.h"
#include "core/tenant_ca.h"
#include "core/timers.h"
#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREPARE_MS       5000u
#define PREPARE_ANSWER   4096u
#define PRIVD_DUMP_MS    95000u /* longer than privd gives a dump or a restore */
#define TURN_MS          60000u /* how long one waits for its turn */
#define TURN_AGAIN_MS    100u
#define PREPARE_TEXT_MAX 200
#define GO_ON_MS         5000u /* until it serves again */

static void await_ms(struct sandbox_obj *o, uint64_t ms)
{
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + ms);
}

/* -- what could not be ------------------------------------------------------------------------- */

/* Its files alone are what there is of it, by the reason in why. */
static void fall(struct sandbox_obj *o, const struct err *why)
{
    log_warn("sandbox %s: its files alone are kept: %s", o->s.id, why->text);
    logs_add(o, "warn", "its files alone are kept: %s", why->text);
    o->fell = *why;
    o->s.kept_memory = false;
}

/* In front of the reason; the advice stays. */
static void begin_with(struct err *e, const char *what)
{
    const struct err why = *e;

    err_set(e, why.code, "%s: %s", what, why.text);
    err_hint(e, "%s", why.hint);
}

/* Its agent serves. */
static void cannot(struct sandbox_obj *o, struct err *why)
{
    dump_forget(o);
    if (!o->s.or_files) {
        o->fell = *why;
        begin_with(why, "the sandbox was not paused");
        keep_not_done(o, why);
        return;
    }
    fall(o, why);
    sandbox_write_row(o);
    keep_send(o);
}

static void on_gone_on(struct core *c, const char *id, const struct err *why, int http_status,
                       const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->dump_ends || c->stopping || sandbox_life(o)->change != LIFE_CHANGE_PAUSE)
        return; /* it ends, or the next start settles it */
    if ((why || http_status / 100 == 5) && clock_mono_ms() < o->dump_until_ms) {
        o->dump_waits = true;
        await_ms(o, TURN_AGAIN_MS);
        return;
    }
    cannot(o, &o->dump_why);
}

static void go_on(struct sandbox_obj *o)
{
    const struct call_agent_request r = {.method = "POST",
                                         .target = "/cay/go-on",
                                         .body = strdup("{}"),
                                         .max_response_bytes = PREPARE_ANSWER,
                                         .timeout_ms = GO_ON_MS};

    await_ms(o, GO_ON_MS + o->core->config.privd_timeout_ms);
    call_agent(o, &r, on_gone_on, NULL);
}

/* It lives, and its agent may be prepared. */
static void cannot_be_dumped(struct sandbox_obj *o, const struct err *why)
{
    dump_forget(o);
    o->dump_ends = true;
    o->dump_why = *why;
    o->dump_until_ms = clock_mono_ms() + GO_ON_MS;
    go_on(o);
}

/* -- one at a time ----------------------------------------------------------------------------- */

/* Of one tenant: privd shares its dumps out by account. */
static bool another_is_dumped(const struct sandbox_obj *o)
{
    const struct core *c = o->core;

    for (size_t i = 0; i < c->registry.n; i++) {
        const struct sandbox_obj *other = c->registry.order[i];

        if (other != o && other->dump_requested && strcmp(other->s.tenant, o->s.tenant) == 0)
            return true;
    }
    return false;
}

/* false: it has waited for too long. */
static bool wait_turn(struct sandbox_obj *o)
{
    if (clock_mono_ms() >= o->dump_until_ms)
        return false;
    o->dump_waits = true;
    await_ms(o, TURN_AGAIN_MS);
    return true;
}

static void wait_to_dump(struct sandbox_obj *o)
{
    struct err why;

    o->dump_requested = false;
    if (wait_turn(o))
        return;
    err_set(&why, ERR_UNAVAILABLE,
            "the memory of other sandboxes of yours is being kept; try again");
    cannot_be_dumped(o, &why);
}

/* -- DUMP -------------------------------------------------------------------------------------- */

/* privd's own words, where it has some: they name what cannot be kept. */
static void dump_error(struct err *e, int status, const struct privsep_msg *m)
{
    enum err_code code = err_code_from_errno(status);
    const char *why = m && m->u.refused.why[0] ? m->u.refused.why : strerror(-status);

    if (status == -EOPNOTSUPP || status == -ENOENT)
        code = ERR_UNIMPLEMENTED;
    else if (status == -EFBIG)
        code = ERR_NO_SPACE;
    err_set(e, code, "its memory cannot be kept: %.*s", PRIVSEP_WHY_SIZE, why);
    if (code == ERR_NO_SPACE)
        err_hint(e, "its memory has to fit its own disk beside its files: free some, or give it "
                    "a larger disk (`cay resize`)");
    else if (status == -ENOENT)
        err_hint(e, "see `cay doctor` for the CRIU that this needs, or pause it without --memory");
    else
        err_hint(e, "if this names a program or a process, end it; a frozen pause (the default), "
                    "and a pause or a fork with the files alone, are possible as it is");
}

/* It has ended, and its files are there: CRIU was killed in the middle, or took too long. */
static void ended_with_files(struct sandbox_obj *o, int status)
{
    struct err why;

    err_set(&why, ERR_INTERNAL,
            status == -ETIMEDOUT ? "its memory could not be written in time"
                                 : "the program that writes its memory was killed");
    fall(o, &why);
    dump_forget(o);
    keep_done(o);
}

void dump_was_lost(struct sandbox_obj *o)
{
    struct err why;

    if (o->restart_refused)
        why = o->dump_why;
    else
        err_set(&why, ERR_INTERNAL, "its memory was lost as a program of cay ended meanwhile");
    fall(o, &why);
}

/* It is not there any more, so that KEPTS tells what there is of it. */
static void query_kept(struct sandbox_obj *o)
{
    dump_forget(o);
    o->change_requested = o->known_to_privd = false;
    await_ms(o, 0); /* keep_on_timer */
}

static void on_dumped(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (!o || !o->dump_requested || sandbox_life(o)->change != LIFE_CHANGE_PAUSE)
        return; /* it ends, and its kept files are dropped then */
    o->dump_requested = o->dump_prepared = false;
    if (call_is_channel_error(status)) {
        dump_forget(o);
        o->change_requested = false;
        pause_channel_broke(o, status, "pausing the sandbox");
        return;
    }
    switch (status) {
    case 0: keep_done(o); break;
    case -ETIMEDOUT:
    case -ECHILD: ended_with_files(o, status); break;
    case -EINPROGRESS: keep_waits(o); break;
    case -EAGAIN:
    case -EBUSY: wait_to_dump(o); break;
    case -ESTALE:
    case -ESRCH: query_kept(o); break;
    default: dump_error(&why, status, m); cannot_be_dumped(o, &why);
    }
}

/* All that leads to it is closed before; relayed connections end. */
static void send_dump(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_DUMP, .slot = o->s.slot, .gen = o->s.gen};
    struct core *c = o->core;
    int64_t rc;

    sockets_discard(o);
    if (c->on_paused)
        c->on_paused(c->on_paused_arg, o->s.id);
    m.u.kept.number = o->s.kept;
    m.u.kept.account = tenant_privd_account(o->s.tenant);
    keep_owner(o->s.id, m.u.kept.owner);
    o->dump_requested = o->dump_prepared = true;
    rc = call_privd(c, o->s.id, &m, on_dumped, NULL);
    if (rc >= 0) {
        await_ms(o, PRIVD_DUMP_MS + c->config.privd_timeout_ms);
    } else if (call_is_channel_error(rc)) {
        dump_forget(o);
        o->change_requested = false;
        pause_channel_broke(o, (int)rc, "pausing the sandbox");
    } else { /* it is sent again, whatever the time: its agent stands still */
        o->dump_waits = true;
        await_ms(o, TURN_AGAIN_MS);
    }
}

bool dump_again(struct sandbox_obj *o)
{
    if (!o->s.kept_memory || !o->s.env)
        return false;
    o->change_requested = true;
    o->dump_until_ms = clock_mono_ms() + TURN_MS;
    send_dump(o);
    return true;
}

/* -- its agent --------------------------------------------------------------------------------- */

/* The agent's words are the tenant's: cut, and text. */
static void prepare_error(struct err *e, int status, const char *body, size_t len)
{
    const enum err_code code = status == 503 ? ERR_UNAVAILABLE : ERR_UNIMPLEMENTED;
    json_t *answer = NULL;
    const char *why;
    struct err ignored;

    if (body && json_parse_request(body, len, false, &answer, &ignored) != ERR_OK)
        answer = NULL;
    why = json_string_value(json_object_get(answer, "message"));
    if (why)
        err_set(e, code, "its memory cannot be kept: %.*s",
                (int)json_whole_text(why, MIN(strlen(why), PREPARE_TEXT_MAX)), why);
    else
        err_set(e, code,
                "its memory cannot be kept: its agent does not know how to prepare for that (%d)",
                status);
    err_hint(e, code == ERR_UNAVAILABLE ? "try again"
                                        : "pause it frozen (the default), or with its files alone");
    json_decref(answer);
}

/* A program is just being started in it, or a hook runs: it is not prepared, and is asked again. */
static void wait_for_agent(struct sandbox_obj *o, int status, const char *body, size_t len)
{
    struct err e;

    o->dump_requested = false;
    if (wait_turn(o))
        return;
    prepare_error(&e, status, body, len);
    cannot(o, &e);
}

static void on_prepared(struct core *c, const char *id, const struct err *why, int http_status,
                        const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err e;

    if (!o || !o->dump_requested || o->dump_prepared || c->stopping ||
        sandbox_life(o)->change != LIFE_CHANGE_PAUSE)
        return; /* it ends, or the next start settles it */
    if (!why && http_status == 503) {
        wait_for_agent(o, http_status, body, len);
        return;
    }
    if (!why && http_status / 100 != 2) {
        prepare_error(&e, http_status, body, len);
        cannot(o, &e);
        return;
    }
    send_dump(o); /* also where it did not answer: it may be prepared */
}

static void prepare(struct sandbox_obj *o)
{
    const struct call_agent_request r = {.method = "POST",
                                         .target = "/cay/prepare",
                                         .body = strdup("{}"),
                                         .max_response_bytes = PREPARE_ANSWER,
                                         .timeout_ms = PREPARE_MS};

    o->dump_requested = true;
    await_ms(o, PREPARE_MS + o->core->config.privd_timeout_ms);
    call_agent(o, &r, on_prepared, NULL);
}

static void try_dump(struct sandbox_obj *o)
{
    if (o->dump_prepared)
        send_dump(o);
    else if (another_is_dumped(o))
        wait_to_dump(o);
    else
        prepare(o);
}

void dump_begin(struct sandbox_obj *o)
{
    o->change_requested = true;
    o->dump_until_ms = clock_mono_ms() + TURN_MS;
    try_dump(o);
}

/* Each try is sent anew, and the time for all of them is that of the first. */
static void restart_again(struct sandbox_obj *o)
{
    const uint64_t until_ms = o->dump_until_ms;

    keep_send_restart(o);
    o->dump_until_ms = until_ms;
}

bool dump_on_timer(struct sandbox_obj *o)
{
    if (!o->dump_waits)
        return false;
    o->dump_waits = false;
    if (o->dump_ends)
        go_on(o);
    else if (sandbox_life(o)->change == LIFE_CHANGE_PAUSE)
        try_dump(o);
    else
        restart_again(o);
    return true;
}

/* -- a restore --------------------------------------------------------------------------------- */

void dump_await_restore(struct sandbox_obj *o)
{
    o->dump_until_ms = clock_mono_ms() + TURN_MS;
    await_ms(o, PRIVD_DUMP_MS + o->core->config.privd_timeout_ms);
}

void dump_restored(struct sandbox_obj *o)
{
    o->change_requested = false;
    pause_resumed(o);
    if (!o->s.has_tenant_ca)
        tenant_ca_install(o->core); /* it may have come meanwhile */
}

/* Others are being restored, or forks are being made of a copy of it. */
static bool ends_by_itself(int status, uint32_t stage)
{
    return status == -EAGAIN || (status == -EBUSY && stage == PRIVSEP_STAGE_LAYER);
}

bool dump_restore_refused(struct sandbox_obj *o, int status, const struct privsep_msg *m,
                          struct err *e)
{
    if (!o->restoring || !m || o->kill_wanted)
        return false;
    if (ends_by_itself(status, m->stage) && wait_turn(o))
        return true;
    if (m->stage != PRIVSEP_STAGE_MEMORY || status == -EAGAIN)
        return false;
    create_explain_memory(e, status);
    if (!o->s.or_files) {
        begin_with(e, "the sandbox was not resumed");
        return false;
    }
    fall(o, e);
    o->restoring = false;
    sandbox_write_row(o);
    keep_send_restart(o);
    return true;
}
