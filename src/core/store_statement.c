/* A statement of the store: its values and columns, its run, and the one form of its errors. */

#include "core/store_internal.h"

#include "base/log.h"
#include "http/json.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static enum err_code code_of(int rc, int errnum)
{
    switch (rc) {
    case SQLITE_FULL: return ERR_NO_SPACE;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ERR_UNAVAILABLE;
    case SQLITE_NOMEM: return ERR_EXHAUSTED;
    default: return errnum ? err_code_from_errno(errnum) : ERR_INTERNAL;
    }
}

enum err_code store_fail(struct store *st, const char *what, struct err *e)
{
    int rc = sqlite3_errcode(st->db);
    int errnum = rc == SQLITE_IOERR || rc == SQLITE_CANTOPEN ? sqlite3_system_errno(st->db) : 0;
    enum err_code code = code_of(rc, errnum);

    err_set(e, code, "store: %s: %s%s%s", what, sqlite3_errmsg(st->db), errnum ? ": " : "",
            errnum ? strerror(errnum) : "");
    if (code == ERR_NO_SPACE)
        err_hint(e, "free some space (or inodes) where the state directory is");
    if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED)
        err_hint(e, "another program writes to cay.db, which is cayd's alone: end that program");
    if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT)
        err_hint(e, STORE_DAMAGED);
    return code;
}

enum err_code store_run(struct store *st, enum store_statement which, const char *what,
                        struct err *e)
{
    sqlite3_stmt *s = st->statements[which];
    enum err_code code = ERR_OK;

    if (sqlite3_step(s) != SQLITE_DONE)
        code = store_fail(st, what, e);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return code;
}

void store_set_durable(struct store *st, bool durable)
{
    if (sqlite3_exec(st->db, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
                     NULL, NULL, NULL) != SQLITE_OK)
        log_error("store: %s", sqlite3_errmsg(st->db));
}

void store_bind_text(sqlite3_stmt *s, int at, const char *text)
{
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

void store_bind_json(sqlite3_stmt *s, int at, const json_t *json)
{
    char *text = json_text(json, JSON_COMPACT);

    if (text)
        sqlite3_bind_text(s, at, text, -1, free);
    else
        sqlite3_bind_null(s, at);
}

json_t *store_column_json(sqlite3_stmt *s, int at)
{
    const char *text = (const char *)sqlite3_column_text(s, at);

    return text ? json_load(text, strlen(text)) : NULL;
}

void store_column_copy(sqlite3_stmt *s, int at, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(s, at);

    snprintf(out, size, "%s", text ? text : "");
}
