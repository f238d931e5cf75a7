/* POST /files/compose: joins files into one and removes them. Source: E2B's envd (it is how its
 * clients put large uploads together). The whole is written beside the destination and renamed over
 * it, so that a failure leaves the old file and the sources as they were. */
#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/files/files.h"
#include "agent/fs/fs_copy.h"
#include "agent/fs/fs_json.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_service.h"
#include "base/clock.h"
#include "base/ids.h"
#include "http/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define REQUEST_MAX (1024u * 1024u)
#define SOURCES_MAX 1000u
#define STEP_BYTES  (4u * 1024u * 1024u)
#define STEP_MS     8
#define SUFFIX_LEN  16u
#define ANSWER_MAX  (64u * 1024u)

struct compose {
    struct fs_job job;
    struct fs_worker *worker;
    struct http_exchange *x;
    bool at_work;
    struct user user;
    char to[AGENT_PATH_SIZE];
    char **sources; /* resolved */
    size_t source_count, next;
    int in, out, dir_fd;
    char tmp_name[NAME_MAX + 1];
    bool done;
    int status; /* 0 while all is well */
    struct err error;
};

static void compose_free(struct compose *c)
{
    for (size_t i = 0; i < c->source_count; i++)
        free(c->sources[i]);
    free(c->sources);
    util_close(&c->in);
    util_close(&c->out);
    util_close(&c->dir_fd);
    free(c);
}

/* Carried through when the client goes away, as with upstream. */
static void compose_closed(struct http_exchange *x, void *data)
{
    struct compose *c = data;

    c->x = NULL;
    if (!c->at_work)
        compose_free(c);
}

/* -- on the worker ----------------------------------------------------------------------------- */

static void fail(struct compose *c, int error, const char *what, const char *path)
{
    c->status = error == -ENOENT ? 404 : files_status(error);
    if (error == -ENOSPC || error == -EDQUOT)
        err_set(&c->error, ERR_NO_SPACE, "not enough disk space available");
    else
        err_set_sys(&c->error, ERR_INTERNAL, error, "%s '%s'", what, path);
    if (c->out >= 0 && c->dir_fd >= 0)
        unlinkat(c->dir_fd, c->tmp_name, 0);
}

static int check_sources(struct compose *c)
{
    for (size_t i = 0; i < c->source_count; i++) {
        struct stat st;
        int fd = fs_open_file(c->sources[i], &st);

        if (fd < 0) {
            fail(c, fd, "source file not found or not a regular file:", c->sources[i]);
            return -ECANCELED;
        }
        close(fd);
    }
    return 0;
}

/* The new file has its own random name and O_EXCL: nothing that is there already is followed or
 * overwritten. */
static int open_output(struct compose *c)
{
    char suffix[SUFFIX_LEN + 1];
    const char *name = path_base(c->to);
    int r = fs_make_parents(c->to, &c->user);

    if (r == 0)
        r = c->dir_fd = fs_open_parent(c->to);
    if (r < 0)
        return r;
    ids_random_text(suffix, SUFFIX_LEN);
    snprintf(c->tmp_name, sizeof(c->tmp_name), ".%.*s.compose-%s.tmp", 200, name, suffix);
    c->out = openat(c->dir_fd, c->tmp_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    0666);
    if (c->out < 0)
        return -errno;
    if (fchown(c->out, c->user.uid, c->user.gid) < 0)
        return -errno;
    return 0;
}

static void finish(struct compose *c)
{
    if (renameat(c->dir_fd, c->tmp_name, c->dir_fd, path_base(c->to)) < 0) {
        fail(c, -errno, "error finalizing compose of", c->to);
        return;
    }
    for (size_t i = 0; i < c->source_count; i++) {
        CLEANUP_CLOSE int fd = fs_open_parent(c->sources[i]);

        if (fd >= 0)
            unlinkat(fd, path_base(c->sources[i]), 0);
    }
    c->done = true;
}

/* Copies a piece of the current source. */
static void copy_step(struct compose *c)
{
    const char *path = c->sources[c->next];
    struct stat st;
    ssize_t n;

    if (c->in < 0)
        c->in = fs_open_file(path, &st);
    if (c->in < 0) {
        fail(c, c->in, "error opening source file", path);
        return;
    }
    n = fs_copy_piece(c->in, c->out, STEP_BYTES);
    if (n < 0) {
        fail(c, (int)n, "error composing source", path);
    } else if (n == 0) {
        util_close(&c->in);
        c->next++;
    }
}

static void compose_work(struct fs_job *job)
{
    struct compose *c = CONTAINER_OF(job, struct compose, job);
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&c->user);
    uint64_t until = clock_mono_ms() + STEP_MS;
    int r;

    if (c->out < 0) {
        if (check_sources(c) < 0)
            return;
        r = open_output(c);
        if (r < 0) {
            fail(c, r, "error creating destination file", c->to);
            return;
        }
    }
    while (!c->status && c->next < c->source_count && clock_mono_ms() < until)
        copy_step(c);
    if (!c->status && c->next == c->source_count)
        finish(c);
}

/* -- on the loop ------------------------------------------------------------------------------- */

static void answer(struct compose *c)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    CLEANUP_BUF struct buf out;
    int r;

    buf_init(&out, ANSWER_MAX);
    if (c->status) {
        http_respond_error(c->x, c->status, "%s", c->error.text);
        return;
    }
    r = buf_append(&out, "{", 1);
    if (r == 0)
        r = fs_json_field(&out, "path", c->to);
    if (r == 0)
        r = fs_json_field(&out, "name", path_base(c->to));
    if (r == 0)
        r = fs_json_field(&out, "type", "file");
    if (r == 0)
        r = buf_append(&out, "}", 1);
    if (r < 0)
        http_respond_error(c->x, 500, "out of memory in the agent");
    else
        http_respond(c->x, 200, &type, 1, out.data, out.len);
}

static void compose_done(struct fs_job *job)
{
    struct compose *c = CONTAINER_OF(job, struct compose, job);

    c->at_work = false;
    if (!c->status && !c->done) {
        c->at_work = true;
        fs_worker_submit(c->worker, &c->job);
    } else if (!c->x) {
        compose_free(c);
    } else {
        answer(c);
    }
}

/* Adds a source to c->sources. False after answering. */
static bool add_source(struct http_exchange *x, const struct agent *a, struct compose *c,
                       const json_t *value)
{
    char path[AGENT_PATH_SIZE];

    if (!json_is_string(value)) {
        http_respond_error(x, 400, "invalid request body: source_paths must be strings");
        return false;
    }
    if (!files_path(x, a, json_string_value(value), &c->user, path))
        return false;
    if (strcmp(path, c->to) == 0) {
        http_respond_error(x, 400, "source path \"%s\" cannot be the same as destination", path);
        return false;
    }
    c->sources[c->source_count] = strdup(path);
    if (!c->sources[c->source_count]) {
        http_respond_error(x, 500, "out of memory in the agent");
        return false;
    }
    c->source_count++;
    return true;
}

static bool read_request(struct http_exchange *x, const struct agent *a, struct compose *c,
                         const json_t *request)
{
    const char *to = "", *username = NULL;
    json_t *sources = NULL, *value;
    struct err e;
    size_t i;

    if (json_get_arr(request, "source_paths", NULL, JSON_OPTIONAL, &sources, &e) != ERR_OK ||
        json_get_str(request, "destination", NULL, JSON_OPTIONAL, AGENT_PATH_SIZE - 1, &to, &e) !=
            ERR_OK ||
        json_get_str(request, "username", NULL, JSON_OPTIONAL, AGENT_NAME_SIZE - 1, &username,
                     &e) != ERR_OK) {
        http_respond_error(x, 400, "invalid request body: %s", e.text);
        return false;
    }
    if (json_array_size(sources) == 0 || json_array_size(sources) > SOURCES_MAX || !to[0]) {
        http_respond_error(
            x, 400, to[0] ? "source_paths must have 1 to %u elements" : "destination is required",
            SOURCES_MAX);
        return false;
    }
    if (!files_user(x, a, username, &c->user) || !files_path(x, a, to, &c->user, c->to))
        return false;
    c->sources = calloc(json_array_size(sources), sizeof(*c->sources));
    json_array_foreach (sources, i, value)
        if (!c->sources || !add_source(x, a, c, value))
            return false;
    return true;
}

static struct compose *compose_new(struct http_exchange *x, struct agent *a)
{
    struct compose *c = calloc(1, sizeof(*c));

    if (!c || !(c->worker = fs_worker_of(a))) {
        free(c);
        return NULL;
    }
    c->in = c->out = c->dir_fd = -1;
    c->job = (struct fs_job){.work = compose_work, .done = compose_done};
    c->x = x;
    return c;
}

static void compose_requested(struct http_exchange *x, char *body, size_t len)
{
    struct agent *a = http_exchange_get(x);
    struct compose *c = compose_new(x, a);
    json_t *request = NULL;
    bool good = false;
    struct err e;

    if (!c)
        http_respond_error(x, 500, "out of memory in the agent");
    else if (json_parse(body, len, false, &request, &e) != ERR_OK || !json_is_object(request))
        http_respond_error(x, 400, "invalid request body: %s",
                           request ? "it must be an object" : e.text);
    else
        good = read_request(x, a, c, request);
    json_decref(request);
    if (!good) {
        if (c)
            compose_free(c);
        return;
    }
    http_exchange_set(x, c, compose_closed);
    c->at_work = true;
    fs_worker_submit(c->worker, &c->job);
}

void files_compose(struct http_exchange *x, struct agent *a)
{
    http_body_collect(x, REQUEST_MAX, compose_requested);
}
