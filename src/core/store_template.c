#include "core/store_template.h"

#include "core/build.h"
#include "core/store_internal.h"

#include <string.h>

enum err_code store_template_put(struct store *st, const char *id, const struct privsep_limits *l,
                                 struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_TEMPLATE_PUT];

    store_bind_text(q, 1, id);
    sqlite3_bind_int64(q, 2, (int64_t)l->memory_bytes);
    sqlite3_bind_int64(q, 3, (int64_t)l->disk_bytes);
    sqlite3_bind_int64(q, 4, l->cpu_milli);
    sqlite3_bind_int64(q, 5, l->pids);
    sqlite3_bind_int64(q, 6, l->filters != 0);
    return store_run(st, STORE_TEMPLATE_PUT, "writing a template's limits", e);
}

enum err_code store_template_each(struct store *st,
                                  void (*fn)(void *arg, const char *id,
                                             const struct privsep_limits *l),
                                  void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_TEMPLATE_EACH];
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct privsep_limits l = {.memory_bytes = (uint64_t)sqlite3_column_int64(q, 1),
                                   .disk_bytes = (uint64_t)sqlite3_column_int64(q, 2),
                                   .cpu_milli = (uint32_t)sqlite3_column_int64(q, 3),
                                   .pids = (uint32_t)sqlite3_column_int64(q, 4),
                                   .filters = sqlite3_column_int64(q, 5) ? PRIVSEP_FILTERS : 0};
        char id[CORE_NAME_SIZE];

        store_column_copy(q, 0, id, sizeof(id));
        fn(arg, id, &l);
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE ? ERR_OK : store_fail(st, "reading templates' limits", e);
}

enum err_code store_image_put(struct store *st, const char *name, uint32_t number,
                              const char *source, const char *digest, const char *tenant,
                              struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_IMAGE_PUT];

    store_bind_text(q, 1, name);
    sqlite3_bind_int64(q, 2, number);
    store_bind_text(q, 3, source);
    store_bind_text(q, 4, digest);
    store_bind_text(q, 5, tenant);
    return store_run(st, STORE_IMAGE_PUT, "writing an image's name", e);
}

enum err_code store_image_delete(struct store *st, const char *name, struct err *e)
{
    store_bind_text(st->statements[STORE_IMAGE_DELETE], 1, name);
    return store_run(st, STORE_IMAGE_DELETE, "removing an image's name", e);
}

enum err_code store_image_each(struct store *st,
                               void (*fn)(void *arg, const char *name, uint32_t number,
                                          const char *source, const char *digest,
                                          const char *tenant),
                               void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_IMAGE_EACH];
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        char name[CORE_NAME_SIZE], source[CORE_IMAGE_SOURCE_SIZE], digest[CORE_IMAGE_DIGEST_SIZE];
        char tenant[CORE_TENANT_SIZE];

        store_column_copy(q, 0, name, sizeof(name));
        store_column_copy(q, 2, source, sizeof(source));
        store_column_copy(q, 3, digest, sizeof(digest));
        store_column_copy(q, 4, tenant, sizeof(tenant));
        fn(arg, name, (uint32_t)sqlite3_column_int64(q, 1), source, digest, tenant);
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE ? ERR_OK : store_fail(st, "reading images' names", e);
}

enum err_code store_published_put(struct store *st, const char *name, struct err *e)
{
    store_bind_text(st->statements[STORE_PUBLISHED_PUT], 1, name);
    return store_run(st, STORE_PUBLISHED_PUT, "publishing a template", e);
}

enum err_code store_published_delete(struct store *st, const char *name, struct err *e)
{
    store_bind_text(st->statements[STORE_PUBLISHED_DELETE], 1, name);
    return store_run(st, STORE_PUBLISHED_DELETE, "publishing a template no more", e);
}

enum err_code store_published_each(struct store *st, void (*fn)(void *arg, const char *name),
                                   void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_PUBLISHED_EACH];
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        char name[CORE_BUILD_NAME_SIZE];

        store_column_copy(q, 0, name, sizeof(name));
        fn(arg, name);
    }
    sqlite3_reset(q);
    return rc == SQLITE_DONE ? ERR_OK : store_fail(st, "reading published templates", e);
}
