/* The requests for a volume's contents: volume_files_begin makes the volume this process's root,
 * and from then on the server's every request comes to volume_files_dispatch, which looks up method
 * and the last part of the path. Files are read and written by files_get.c and files_post.c, trees
 * are walked by volume_tree.c; calls of a few system calls are done here, at once. Each acts as
 * root inside: cayd decided by the volume's token whether the caller may. */

#include "agent/files/volume_files.h"

#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/files/files.h"
#include "agent/files/volume_entry.h"
#include "agent/files/volume_tree.h"
#include "agent/fs/fs_open.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ENTRY_MAX 65536u
#define BODY_MAX  65536u

static const struct user root = {.name = "root"};

int volume_files_begin(struct agent *a)
{
    static const char dir[] = AGENT_VOLUMES_DIR "/0";

    if (a->serves_volume)
        return -EALREADY;
    if (chroot(dir) < 0 || chdir("/") < 0)
        return -errno;
    a->serves_volume = true;
    return 0;
}

/* -- answers ----------------------------------------------------------------------------------- */

static void fail(struct http_exchange *x, int error, const char *path)
{
    if (error == -ENOENT || error == -ENOTDIR)
        http_respond_error(x, 404, "path '%s' not found", path);
    else if (error == -EEXIST)
        http_respond_error(x, 409, "'%s' is there already", path);
    else if (error == -EOPNOTSUPP)
        http_respond_error(x, 400, "'%s' is a symbolic link, which has no mode", path);
    else
        http_respond_error(x, files_status(error), "path '%s': %s", path, strerror(-error));
}

static void reply_entry(struct http_exchange *x, int status, const char *path)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    CLEANUP_BUF struct buf out;
    int r;

    buf_init(&out, ENTRY_MAX);
    r = volume_entry_append(&out, path, path);
    if (r == 0)
        http_respond(x, status, &type, 1, out.data, out.len);
    else
        fail(x, r, path);
}

/* -- calls ------------------------------------------------------------------------------------- */

static void path_get(struct http_exchange *x, struct agent *a UNUSED, const char *path)
{
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&root);

    reply_entry(x, 200, path);
}

static enum err_code read_owner(const json_t *body, struct files_owner *o, struct err *e)
{
    int64_t uid = -1, gid = -1, mode = -1;

    if (json_get_int(body, "uid", NULL, JSON_OPTIONAL, 0, FILES_OWNER_MAX, &uid, e) != ERR_OK ||
        json_get_int(body, "gid", NULL, JSON_OPTIONAL, 0, FILES_OWNER_MAX, &gid, e) != ERR_OK ||
        json_get_int(body, "mode", NULL, JSON_OPTIONAL, 0, FILES_MODE_MAX, &mode, e) != ERR_OK)
        return e->code;
    *o = (struct files_owner){.has_uid = uid >= 0,
                              .has_gid = gid >= 0,
                              .has_mode = mode >= 0,
                              .uid = (uint32_t)MAX(uid, 0),
                              .gid = (uint32_t)MAX(gid, 0),
                              .mode = (uint32_t)MAX(mode, 0)};
    return ERR_OK;
}

/* False after answering. */
static bool take_path(struct http_exchange *x, char out[static AGENT_PATH_SIZE])
{
    const char *requested;
    char absolute[AGENT_PATH_SIZE + 1];
    int r;

    if (!files_query(x, "path", &requested))
        return false;
    if (!requested || !requested[0]) {
        http_respond_error(x, 400, "query parameter 'path' is required");
        return false;
    }
    (void)snprintf(absolute, sizeof(absolute), "%s%s", requested[0] == '/' ? "" : "/", requested);
    r = path_clean(absolute, out);
    if (r < 0)
        http_respond_error(x, 400, "path: %s", strerror(-r));
    return r == 0;
}

static void patch_read(struct http_exchange *x, char *text, size_t len)
{
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&root);
    char path[AGENT_PATH_SIZE];
    struct files_owner o;
    json_t *body = NULL;
    struct err e;
    int r;

    if (!take_path(x, path))
        return;
    if (json_parse(text, len, false, &body, &e) != ERR_OK || read_owner(body, &o, &e) != ERR_OK)
        http_respond_error(x, 400, "%s", e.text);
    else if ((r = files_owner_apply(path, &o, false)) < 0)
        fail(x, r, path);
    else
        reply_entry(x, 200, path);
    json_decref(body);
}

static void path_patch(struct http_exchange *x, struct agent *a UNUSED, const char *path UNUSED)
{
    http_body_collect(x, BODY_MAX, patch_read);
}

static void dir_get(struct http_exchange *x, struct agent *a, const char *path)
{
    const char *text;
    unsigned long depth = 1;

    if (!files_query(x, "depth", &text))
        return;
    if (text)
        depth = strlen(text) <= 9 && text[0] && strspn(text, "0123456789") == strlen(text)
                    ? strtoul(text, NULL, 10)
                    : 0;
    if (depth >= 1 && depth <= VOLUME_DEPTH_MAX)
        volume_tree_list(x, a, path, (uint32_t)depth);
    else
        http_respond_error(x, 400, "query parameter 'depth' is a whole number of 1 to %d",
                           VOLUME_DEPTH_MAX);
}

/* Parents that are made have the same owner, and the mode of directories. */
static int make_dir(const char *path, const struct files_owner *o, bool force)
{
    struct user owner = {.name = "root",
                         .uid = o->has_uid ? o->uid : FILES_OWNER_DEFAULT,
                         .gid = o->has_gid ? o->gid : FILES_OWNER_DEFAULT};
    struct stat st;
    int r = force ? fs_make_parents(path, &owner) : 0;

    if (r < 0)
        return r;
    if (mkdir(path, 0755) == 0)
        return files_owner_apply(path, o, true);
    r = -errno;
    if (r == -EEXIST && force && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return files_owner_apply(path, o, false);
    return r;
}

static void dir_post(struct http_exchange *x, struct agent *a UNUSED, const char *path)
{
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&root);
    struct files_owner o;
    bool force;
    int r;

    if (!files_owner_query(x, &o, &force))
        return;
    r = make_dir(path, &o, force);
    if (r < 0)
        fail(x, r, path);
    else
        reply_entry(x, 201, path);
}

static void file_get(struct http_exchange *x, struct agent *a, const char *path)
{
    files_get_path(x, a, path, &root);
}

static void file_written(struct http_exchange *x, const char *path)
{
    reply_entry(x, 201, path);
}

static void file_put(struct http_exchange *x, struct agent *a, const char *path)
{
    struct files_owner o;
    bool force;

    if (files_owner_query(x, &o, &force))
        files_put(x, a, path, &o, file_written);
}

/* -- which call -------------------------------------------------------------------------------- */

static const struct call {
    const char *method, *name;
    void (*handler)(struct http_exchange *x, struct agent *a, const char *path);
} calls[] = {
    {"GET", "path", path_get},
    {"PATCH", "path", path_patch},
    {"DELETE", "path", volume_tree_remove},
    {"GET", "dir", dir_get},
    {"POST", "dir", dir_post},
    {"GET", "file", file_get},
    {"HEAD", "file", file_get},
    {"PUT", "file", file_put},
};

/* The last part of /volumecontent/ID/NAME; NULL: it is no such path. */
static const char *call_name(const char *path)
{
    const char *id = path + sizeof(VOLUME_PREFIX) - 1, *slash;

    if (strncmp(path, VOLUME_PREFIX, sizeof(VOLUME_PREFIX) - 1) != 0)
        return NULL;
    slash = strchr(id, '/');
    return slash && slash != id ? slash + 1 : NULL;
}

static const struct call *find_call(struct http_exchange *x)
{
    const struct http_head *h = http_exchange_head(x);
    const char *name = call_name(h->path);
    bool known = false;

    for (size_t i = 0; name && i < ARRAY_SIZE(calls); i++) {
        if (strcmp(calls[i].name, name) != 0)
            continue;
        known = true;
        if (strcmp(calls[i].method, h->method) == 0)
            return &calls[i];
    }
    if (known)
        http_respond_error(x, 405, "%s is not a method of %s", h->method, h->path);
    else
        http_respond_error(x, 404, "there is no %s here", h->path);
    return NULL;
}

/* cayd asks before it ends this process: 409 while a call is under way, else none is served from
 * now on. */
static void end(struct http_exchange *x, struct agent *a)
{
    if (a->transfers > 0) {
        http_respond_error(x, 409, "%zu calls of the volume's contents are under way",
                           a->transfers);
        return;
    }
    a->serves_no_more = true;
    http_respond(x, 204, NULL, 0, NULL, 0);
}

void volume_files_dispatch(struct http_exchange *x, struct agent *a)
{
    const struct call *c;
    char path[AGENT_PATH_SIZE];

    if (strcmp(http_exchange_head(x)->path, VOLUME_END_PATH) == 0) {
        end(x, a);
        return;
    }
    c = find_call(x);
    if (!c || !take_path(x, path))
        return;
    /* cayd repeats a read that is cut: this process is ended now. */
    if (a->serves_no_more && strcmp(c->method, "GET") == 0)
        http_exchange_abort(x);
    else if (a->serves_no_more)
        http_respond_error(x, 409, "the volume is just being given to a sandbox; try again");
    else if (a->transfers >= VOLUME_CALLS_MAX)
        http_respond_error(x, 429, "%u calls of this volume's contents are under way: try again",
                           VOLUME_CALLS_MAX);
    else
        c->handler(x, a, path);
}
