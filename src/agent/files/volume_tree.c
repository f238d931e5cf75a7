/* Lists and removals of a volume's contents: a walk takes its steps on the file worker, one after
 * the other with what else is there, and answers on the loop. A list is collected whole, within its
 * maxima, before it is answered. Called by volume_files.c. */

#include "agent/files/volume_tree.h"

#include "agent/common/user.h"
#include "agent/files/files.h"
#include "agent/files/volume_entry.h"
#include "agent/files/volume_files.h"
#include "agent/fs/fs_list.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_remove.h"
#include "agent/fs/fs_service.h"

#include <errno.h>
#include <string.h>

#define PIECE_BYTES (128u * 1024u) /* of a listing in one step */

/* A walk. It belongs to the worker while it is submitted; x is the loop's. */
struct walk {
    struct fs_job job;
    struct fs_worker *worker;
    struct agent *agent;
    struct http_exchange *x; /* NULL: the client has gone */
    bool at_work;
    char path[AGENT_PATH_SIZE];
    uint32_t depth;
    int result; /* of the last step: 1 more, 0 done, -errno */
    struct fs_lister *lister;
    struct fs_remover *remover;
    struct buf out;
};

static const struct user root = {.name = "root"};

static void walk_free(struct walk *w)
{
    fs_lister_free(w->lister);
    fs_remover_free(w->remover);
    buf_free(&w->out);
    w->agent->transfers--;
    free(w);
}

static void walk_closed(struct http_exchange *x UNUSED, void *data)
{
    struct walk *w = data;

    w->x = NULL;
    if (!w->at_work)
        walk_free(w);
}

static void submit(struct walk *w)
{
    w->at_work = true;
    fs_worker_submit(w->worker, &w->job);
}

static void begin(struct http_exchange *x, struct agent *a, const char *path, uint32_t depth,
                  void (*work)(struct fs_job *), void (*done)(struct fs_job *))
{
    struct walk *w = calloc(1, sizeof(*w));

    if (!w || !(w->worker = fs_worker_of(a))) {
        free(w);
        http_respond_error(x, 500, "out of memory in the agent");
        return;
    }
    w->job = (struct fs_job){.work = work, .done = done};
    w->agent = a;
    a->transfers++;
    w->x = x;
    w->depth = depth;
    memcpy(w->path, path, strlen(path) + 1);
    buf_init(&w->out, VOLUME_LIST_BYTES);
    http_exchange_set(x, w, walk_closed);
    submit(w);
}

/* True: there was no more to do, and the client is there to be answered. */
static bool is_over(struct walk *w)
{
    w->at_work = false;
    if (w->result == 1)
        submit(w);
    else if (!w->x)
        walk_free(w);
    else
        return true;
    return false;
}

/* -- a listing --------------------------------------------------------------------------------- */

static int list_open(struct walk *w)
{
    char resolved[AGENT_PATH_SIZE];
    int r = fs_eval_dir(w->path, resolved);

    if (r < 0)
        return r;
    r = fs_lister_new(resolved, w->path, w->depth, false, &w->lister);
    if (r < 0)
        return r;
    fs_lister_limit(w->lister, VOLUME_LIST_ENTRIES);
    fs_lister_write_by(w->lister, volume_entry_append);
    return buf_append(&w->out, "[", 1);
}

static void list_work(struct fs_job *job)
{
    struct walk *w = CONTAINER_OF(job, struct walk, job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&root);

    w->result = w->lister ? 0 : list_open(w);
    if (w->result == 0)
        w->result = fs_lister_step(w->lister, PIECE_BYTES, &w->out);
    if (w->result == 0)
        w->result = buf_append(&w->out, "]", 1);
}

static void list_done(struct fs_job *job)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    struct walk *w = CONTAINER_OF(job, struct walk, job);

    if (!is_over(w))
        return;
    if (w->result == 0)
        http_respond(w->x, 200, &type, 1, w->out.data, w->out.len);
    else if (w->result == -EMSGSIZE)
        http_respond_error(w->x, 400,
                           "'%s' has more than %u entries to depth %u, or a longer list than %u "
                           "bytes: ask for less depth, or list its directories one by one",
                           w->path, VOLUME_LIST_ENTRIES, w->depth, VOLUME_LIST_BYTES);
    else if (w->result == -ENOTDIR)
        http_respond_error(w->x, 400, "path '%s' is not a directory", w->path);
    else
        http_respond_error(w->x, files_status(w->result), "path '%s': %s", w->path,
                           strerror(-w->result));
}

void volume_tree_list(struct http_exchange *x, struct agent *a, const char *path, uint32_t depth)
{
    begin(x, a, path, depth, list_work, list_done);
}

/* -- a removal --------------------------------------------------------------------------------- */

static void remove_work(struct fs_job *job)
{
    struct walk *w = CONTAINER_OF(job, struct walk, job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&root);
    struct stat st;

    w->result = w->remover                ? 0
                : lstat(w->path, &st) < 0 ? -errno
                                          : fs_remover_new(w->path, &w->remover);
    if (w->result == 0)
        w->result = fs_remover_step(w->remover);
}

static void remove_done(struct fs_job *job)
{
    struct walk *w = CONTAINER_OF(job, struct walk, job);

    if (!is_over(w))
        return;
    if (w->result == 0)
        http_respond(w->x, 204, NULL, 0, NULL, 0);
    else if (w->result == -EBUSY)
        http_respond_error(w->x, 400, "the volume's own directory cannot be removed");
    else
        http_respond_error(w->x, w->result == -ENOTDIR ? 404 : files_status(w->result),
                           "path '%s': %s", w->path, strerror(-w->result));
}

void volume_tree_remove(struct http_exchange *x, struct agent *a, const char *path)
{
    begin(x, a, path, 0, remove_work, remove_done);
}
