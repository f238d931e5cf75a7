#include "core/signed_end.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/ingress.h"
#include "core/sandbox.h"
#include "core/store_internal.h"

#include <errno.h>

/* -- the table --------------------------------------------------------------------------------- */

static enum err_code purge(struct store *st, const char *id, int64_t now_s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SIGNED_END_PURGE];

    store_bind_text(q, 1, id);
    sqlite3_bind_int64(q, 2, now_s);
    return store_run(st, STORE_SIGNED_END_PURGE, "removing addresses that are over", e);
}

/* The number that SELECT count(*) gives. */
static enum err_code count(struct store *st, enum store_statement which, int64_t *out,
                           struct err *e)
{
    sqlite3_stmt *q = st->statements[which];
    enum err_code code = ERR_OK;

    if (sqlite3_step(q) == SQLITE_ROW)
        *out = sqlite3_column_int64(q, 0);
    else
        code = store_fail(st, "reading addresses that were ended", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

static enum err_code count_all(struct store *st, const char *id, int64_t *out, struct err *e)
{
    store_bind_text(st->statements[STORE_SIGNED_END_COUNT], 1, id);
    return count(st, STORE_SIGNED_END_COUNT, out, e);
}

static enum err_code count_one(struct store *st, const char *id, const char *signature,
                               int64_t *out, struct err *e)
{
    store_bind_text(st->statements[STORE_SIGNED_END_FIND], 1, id);
    store_bind_text(st->statements[STORE_SIGNED_END_FIND], 2, signature);
    return count(st, STORE_SIGNED_END_FIND, out, e);
}

/* Synced: one that was refused once is not to work again. */
static enum err_code put(struct store *st, const char *id, const char *signature, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SIGNED_END_PUT];
    enum err_code code;

    store_bind_text(q, 1, id);
    store_bind_text(q, 2, signature);
    sqlite3_bind_int64(q, 3, ingress_signed_until(signature));
    store_set_durable(st, true);
    code = store_run(st, STORE_SIGNED_END_PUT, "ending a signed address", e);
    store_set_durable(st, false);
    return code;
}

/* -- calls ------------------------------------------------------------------------------------- */

static enum err_code end_one(struct core *c, const char *id, const char *signature, int64_t now_s,
                             struct err *e)
{
    int64_t there = 0, all = 0;
    enum err_code code = purge(c->store, id, now_s, e);

    if (code == ERR_OK)
        code = count_one(c->store, id, signature, &there, e);
    if (code == ERR_OK)
        code = count_all(c->store, id, &all, e);
    if (code != ERR_OK || there > 0)
        return code;
    if (all >= CORE_SIGNED_ENDS_MAX)
        return err_set(e, ERR_EXHAUSTED,
                       "%u signed addresses of sandbox %s were ended before their time: wait until "
                       "one of them is over",
                       CORE_SIGNED_ENDS_MAX, id);
    return put(c->store, id, signature, e);
}

enum err_code core_signed_end(struct core *c, const char *tenant, const char *id, uint16_t port,
                              const char *signature, struct err *e)
{
    char token[CORE_TOKEN_SIZE + 1];
    struct sandbox_obj *o = NULL;
    int64_t now_s = clock_real_ms() / 1000;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);
    int rc;

    if (code != ERR_OK)
        return code;
    core_sandbox_token(c, o->s.id, token);
    rc = ingress_check_signed(token, port, signature, now_s);
    if (rc == -EPERM)
        return err_set(e, ERR_NOT_FOUND, "this is no signed address of port %u of sandbox %s", port,
                       id);
    return rc == -ETIMEDOUT ? ERR_OK : end_one(c, o->s.id, signature, now_s, e);
}

bool core_signed_has_ended(struct core *c, const char *id, const char *signature)
{
    int64_t there = 0;
    struct err e;

    if (count_one(c->store, id, signature, &there, &e) == ERR_OK)
        return there > 0;
    log_error("%s", e.text);
    return true;
}
