/* A store that was cut to nothing. SQLite takes a file without a byte for a database that is new,
 * and removes the log beside it: a start would end all sandboxes, and drop what others keep, as
 * none of them has a row. */

#include "core/store_internal.h"

#include "base/util.h"
#include "core/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static bool has(const char *dir, const char *name, struct stat *st)
{
    CLEANUP_FREE char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) >= 0 && lstat(path, st) == 0;
}

/* A first start that was killed leaves such a file as well, but before there is a key. */
enum err_code store_check_cut(const char *dir, struct err *e)
{
    struct stat st, key;

    if (!has(dir, "cay.db", &st) || st.st_size > 0 || !has(dir, CORE_KEY_FILE, &key))
        return ERR_OK;
    err_set(e, ERR_INTERNAL, "store: cay.db is empty, and was not before");
    err_hint(e, STORE_DAMAGED);
    return ERR_INTERNAL;
}
