/* filesystem.Filesystem, the calls that walk trees: ListDir, Remove, and Move where it must copy.
 * They work in steps on the file worker, since a tree is as large as its maker likes. */
#include "agent/common/user.h"
#include "agent/fs/fs_list.h"
#include "agent/fs/fs_move.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_remove.h"
#include "agent/fs/fs_service.h"
#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES (128u * 1024u) /* of a listing in one step */
#define FIRST_BYTES (512u * 1024u) /* a listing up to here is answered as one */
#define LIST_MAX    (2u * 1024u * 1024u)

/* A ListDir, Remove or Move under way. It belongs to the worker while it is submitted; x is the
 * loop's, which clears it when the exchange closes first. */
struct task {
    struct fs_job job;
    struct fs_worker *worker;
    struct http_exchange *x;
    bool at_work; /* submitted, or waiting for room in the answer */
    bool waiting;
    struct user user;
    char path[AGENT_PATH_SIZE];
    int result; /* of the last step: 1 more, 0 done, -errno */

    struct fs_remover *remover;

    struct fs_mover *mover;
    char to[AGENT_PATH_SIZE];

    struct fs_lister *lister, *counter;
    uint32_t depth;
    struct buf out;
    bool streaming; /* the answer's head is out */
};

static void task_free(struct task *t)
{
    fs_remover_free(t->remover);
    fs_mover_free(t->mover);
    fs_lister_free(t->lister);
    fs_lister_free(t->counter);
    buf_free(&t->out);
    free(t);
}

static void submit(struct task *t)
{
    t->at_work = true;
    t->waiting = false;
    fs_worker_submit(t->worker, &t->job);
}

/* The exchange is over. A removal or move that was begun is carried through all the same, as with
 * upstream: half a tree is of no use. */
static void task_closed(struct http_exchange *x, void *data)
{
    struct task *t = data;

    t->x = NULL;
    if (!t->at_work || t->waiting)
        task_free(t);
}

/* NULL after having answered. */
static struct task *task_new(struct http_exchange *x, const json_t *request, struct agent *a,
                             void (*work)(struct fs_job *), void (*done)(struct fs_job *))
{
    struct task *t = calloc(1, sizeof(*t));

    if (!t || !(t->worker = fs_worker_of(a))) {
        free(t);
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED, "out of memory in the agent");
        return NULL;
    }
    if (!fs_begin(x, request, a, "path", &t->user, t->path)) {
        free(t);
        return NULL;
    }
    t->job = (struct fs_job){.work = work, .done = done};
    t->x = x;
    buf_init(&t->out, LIST_MAX);
    return t;
}

static struct task *task_of(struct fs_job *job)
{
    return CONTAINER_OF(job, struct task, job);
}

/* -- Remove ------------------------------------------------------------------------------------ */

static void remove_work(struct fs_job *job)
{
    struct task *t = task_of(job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&t->user);

    t->result = t->remover ? 0 : fs_remover_new(t->path, &t->remover);
    if (t->result == 0)
        t->result = fs_remover_step(t->remover);
}

static void remove_done(struct fs_job *job)
{
    struct task *t = task_of(job);

    t->at_work = false;
    if (t->result == 1) {
        submit(t);
        return;
    }
    if (!t->x) {
        task_free(t);
        return;
    }
    if (t->result < 0)
        fs_fail(t->x, t->result, "error removing file or directory", t->path);
    else
        connect_reply_empty(t->x);
}

static void remove_requested(struct http_exchange *x, json_t *request, bool stream)
{
    struct task *t = NULL;

    if (stream)
        connect_fail(x, CONNECT_UNIMPLEMENTED, "this method is not a stream");
    else
        t = task_new(x, request, http_exchange_get(x), remove_work, remove_done);
    json_decref(request);
    if (!t)
        return;
    http_exchange_set(x, t, task_closed);
    submit(t);
}

void fs_remove(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, remove_requested);
}

/* -- Move between file systems ----------------------------------------------------------------- */

static void move_work(struct fs_job *job)
{
    struct task *t = task_of(job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&t->user);

    t->result = t->mover ? 0 : fs_mover_new(t->path, t->to, &t->mover);
    if (t->result == 0)
        t->result = fs_mover_step(t->mover);
}

static void move_done(struct fs_job *job)
{
    struct task *t = task_of(job);

    t->at_work = false;
    if (t->result == 1) {
        submit(t);
    } else if (!t->x) {
        task_free(t);
    } else if (t->result < 0) {
        fs_fail(t->x, t->result, "cannot move between file systems", t->path);
    } else {
        CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&t->user);

        fs_reply_entry(t->x, t->to);
    }
}

void fs_move_by_copy(struct http_exchange *x, struct agent *a, const struct user *u,
                     const char *from, const char *to)
{
    struct task *t = calloc(1, sizeof(*t));

    if (!t || !(t->worker = fs_worker_of(a))) {
        free(t);
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED, "out of memory in the agent");
        return;
    }
    t->job = (struct fs_job){.work = move_work, .done = move_done};
    t->x = x;
    t->user = *u;
    memcpy(t->path, from, strlen(from) + 1);
    memcpy(t->to, to, strlen(to) + 1);
    http_exchange_set(x, t, task_closed);
    submit(t);
}

/* -- ListDir ----------------------------------------------------------------------------------- */

/* The directory itself may be a link; links in it are not followed. */
static int list_open(struct task *t, bool count_only, struct fs_lister **out)
{
    char resolved[AGENT_PATH_SIZE];
    int r = fs_eval_dir(t->path, resolved);

    if (r < 0)
        return r;
    return fs_lister_new(resolved, t->path, t->depth, count_only, out);
}

/* Fills out up to FIRST_BYTES; when that is not all, the whole is counted once before anything is
 * sent, so that a listing over the maximum is an error instead of half an answer. */
static int list_step(struct task *t)
{
    int r = t->lister ? 0 : list_open(t, false, &t->lister);

    if (r < 0)
        return r;
    if (t->counter) {
        r = fs_lister_step(t->counter, SIZE_MAX, NULL);
        if (r == 0) {
            fs_lister_free(t->counter);
            t->counter = NULL;
            t->streaming = true;
        }
        return r < 0 ? r : 1;
    }
    r = fs_lister_step(t->lister, PIECE_BYTES, &t->out);
    if (r == 1 && !t->streaming && t->out.len >= FIRST_BYTES) {
        int opened = list_open(t, true, &t->counter);

        return opened < 0 ? opened : 1;
    }
    return r;
}

static void list_work(struct fs_job *job)
{
    struct task *t = task_of(job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&t->user);

    t->result = list_step(t);
}

static void list_fail(struct task *t)
{
    if (http_response_begun(t->x)) {
        http_exchange_abort(t->x);
    } else if (t->result == -EMSGSIZE) {
        connect_fail(t->x, CONNECT_RESOURCE_EXHAUSTED,
                     "'%s' has more than %u entries to depth %u: ask for less depth, or list its "
                     "subdirectories one by one",
                     t->path, FS_LIST_ENTRIES_MAX, t->depth);
    } else if (t->result == -ENOTDIR) {
        connect_fail(t->x, CONNECT_INVALID_ARGUMENT, "path is not a directory: %s", t->path);
    } else if (t->result == -ELOOP) {
        connect_fail(t->x, CONNECT_FAILED_PRECONDITION,
                     "cyclic symlink or chain >255 links at '%s'", t->path);
    } else {
        fs_fail(t->x, t->result, "error reading directory", t->path);
    }
}

static void list_drained(struct http_exchange *x, void *data)
{
    struct task *t = data;

    if (t->waiting)
        submit(t);
}

/* The answer's frame around the entries. */
static const char list_head[] = "{\"entries\":[", list_tail[] = "]}";

static void list_answer_whole(struct task *t)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    CLEANUP_BUF struct buf all;

    buf_init(&all, LIST_MAX + sizeof(list_head) + sizeof(list_tail));
    if (buf_append_str(&all, list_head) < 0 || buf_append(&all, t->out.data, t->out.len) < 0 ||
        buf_append_str(&all, list_tail) < 0)
        connect_fail(t->x, CONNECT_RESOURCE_EXHAUSTED, "out of memory in the agent");
    else
        http_respond(t->x, 200, &type, 1, all.data, all.len);
}

/* Sends what is there. True when the answer is full and the next step must wait. */
static bool list_send(struct task *t)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    bool full;

    if (!http_response_begun(t->x)) {
        http_response_begin(t->x, 200, &type, 1, -1);
        http_response_on_drain(t->x, list_drained);
        http_response_write(t->x, list_head, strlen(list_head));
    }
    full = t->out.len > 0 && http_response_write(t->x, t->out.data, t->out.len) == 1;
    buf_clear(&t->out);
    return full;
}

static void list_done(struct fs_job *job)
{
    struct task *t = task_of(job);

    t->at_work = false;
    if (!t->x) {
        task_free(t);
    } else if (t->result < 0) {
        list_fail(t);
    } else if (t->result == 0 && !t->streaming) {
        list_answer_whole(t);
    } else if (t->result == 0) {
        list_send(t);
        http_response_write(t->x, list_tail, strlen(list_tail));
        http_response_end(t->x);
    } else if (t->streaming && list_send(t)) {
        t->at_work = t->waiting = true;
    } else {
        submit(t);
    }
}

static void list_requested(struct http_exchange *x, json_t *request, bool stream)
{
    struct task *t = NULL;
    int64_t depth = 0;
    struct err e;

    if (stream)
        connect_fail(x, CONNECT_UNIMPLEMENTED, "this method is not a stream");
    else if (json_get_int(request, "depth", NULL, JSON_OPTIONAL, 0, UINT32_MAX, &depth, &e) !=
             ERR_OK)
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "%s", e.text);
    else
        t = task_new(x, request, http_exchange_get(x), list_work, list_done);
    json_decref(request);
    if (!t)
        return;
    t->depth = depth ? (uint32_t)depth : 1;
    http_exchange_set(x, t, task_closed);
    submit(t);
}

void fs_list_dir(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, list_requested);
}
