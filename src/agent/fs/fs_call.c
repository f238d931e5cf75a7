/* Shared by the calls of the filesystem service and of /files: the user and the path of a request,
 * the worker, and the answers. */
#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/fs/fs_entry.h"
#include "agent/fs/fs_service.h"
#include "http/json.h"

#include <errno.h>

#define ENTRY_MAX (512u * 1024u) /* one EntryInfo: its metadata may triple by escapes */

struct files_state {
    struct fs_worker *worker;
};

struct fs_worker *fs_worker_of(struct agent *a)
{
    if (!a->files)
        a->files = calloc(1, sizeof(*a->files));
    if (a->files && !a->files->worker)
        a->files->worker = fs_worker_new(a->loop);
    return a->files ? a->files->worker : NULL;
}

enum connect_code fs_connect_code(int error)
{
    switch (error) {
    case -ELOOP: return CONNECT_FAILED_PRECONDITION;
    case -ENOTEMPTY:
    case -ETXTBSY: return CONNECT_FAILED_PRECONDITION;
    default: return connect_code_from_err(err_code_from_errno(error));
    }
}

void fs_fail(struct http_exchange *x, int error, const char *what, const char *path)
{
    struct err e;

    err_set_sys(&e, err_code_from_errno(error), error, "%s '%s'", what, path);
    connect_fail(x, fs_connect_code(error), "%s", e.text);
}

bool fs_begin(struct http_exchange *x, const json_t *request, const struct agent *a,
              const char *field, struct user *u, char path[static AGENT_PATH_SIZE])
{
    const char *requested = "";
    struct err e;

    if (user_of_request(x, a, u, &e) == ERR_OK &&
        json_get_str(request, field, NULL, JSON_OPTIONAL, AGENT_PATH_SIZE - 1, &requested, &e) ==
            ERR_OK &&
        path_resolve(requested, u, a->default_workdir, path, &e) == ERR_OK)
        return true;
    connect_fail(x, connect_code_from_err(e.code), "%s", e.text);
    return false;
}

static void reply_text(struct http_exchange *x, const char *json, size_t len)
{
    static const struct http_header type = {"Content-Type", "application/json"};

    http_respond(x, 200, &type, 1, json, len);
}

void fs_reply_entry(struct http_exchange *x, const char *path)
{
    CLEANUP_USER_NAMES struct user_names names;
    CLEANUP_BUF struct buf out;
    int r;

    user_names_init(&names);
    buf_init(&out, ENTRY_MAX);
    r = buf_append_str(&out, "{\"entry\":");
    if (r == 0)
        r = fs_entry_append(&out, path, NULL, &names);
    if (r == 0)
        r = buf_append(&out, "}", 1);
    if (r == 0)
        reply_text(x, out.data, out.len);
    else
        fs_fail(x, r, "file not found or not readable:", path);
}
