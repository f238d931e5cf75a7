/* template import: an image becomes a template of the server on this machine. It is read and
 * compared with its digests here, with the rights of the caller, and left for cay-job by number
 * in a folder of root's; the server gives the number, and then has the template made. The folder
 * is locked as long as it is filled and used, so that what a killed command left can be told and
 * removed. */
#include "base/clock.h"
#include "base/disk_space.h"
#include "base/io.h"
#include "cli/commands.h"
#include "cli/image_fetch.h"
#include "image/build_file.h"
#include "image/layer_names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define NOTE_BYTES          (64u << 10) /* src/unpack/additions.c takes as much */
#define GIVE_BACK_MS        30000u
#define SWEPT_MAX           16u /* times that a folder is made anew, as the server removed it */
#define IMPORT_FREE_PERCENT 5u  /* of the state directory's disk, as a layer is left there */

struct import {
    struct cli *c;
    struct api api;
    const char *name, *source;
    struct image image;
    struct image_fetch fetched;
    char path[PATH_MAX]; /* where the image is left */
    int dir_fd;          /* the same, or -1 */
    int name_fd;         /* the lock of the name, or -1 */
};

/* -- the image --------------------------------------------------------------------------------- */

/* Before anything of the server is touched. */
static enum err_code check_source(const struct import *m, struct err *e)
{
    if (image_fetch_is_source(m->source) || image_is_source(m->source))
        return ERR_OK;
    err_set(e, ERR_INVALID, "\"%.80s\" is not the source of an image", m->source);
    err_hint(e, "it is oci:DIR[:TAG], docker-archive:FILE[:TAG], dir:DIR or docker://NAME[:TAG]");
    return e->code;
}

static enum err_code open_image(struct import *m, struct err *e)
{
    if (image_fetch_is_source(m->source))
        return image_fetch(m->c, m->source, &m->fetched, &m->image, e);
    return image_open(m->source, &m->image, e);
}

/* -- what the image wants ---------------------------------------------------------------------- */

/* The start command, where it is asked for: ENTRYPOINT and CMD, as USER in WORKDIR. */
static enum err_code add_start(const struct import *m, json_t *start, struct err *e)
{
    const struct image_config *c = &m->image.config;
    json_t *words = json_copy(c->entrypoint);
    CLEANUP_FREE char *cmd = NULL, *user = strndup(c->user, strcspn(c->user, ":"));

    json_array_extend(words, c->cmd);
    if (json_array_size(words) == 0)
        cli_wrong_option(e, "--start: the image has neither ENTRYPOINT nor CMD");
    else if (user && user[0] && strspn(user, "0123456789") == strlen(user) &&
             strcmp(user, "0") != 0)
        cli_wrong_option(e, "--start: the image's user %s has no name", user);
    else
        cmd = build_file_quote("exec", words);
    json_decref(words);
    if (!cmd || !user)
        return e->code != ERR_OK ? e->code : err_set(e, ERR_EXHAUSTED, "memory is out");
    json_object_set_new(start, "cmd", json_string(cmd));
    json_object_set_new(start, "user",
                        json_string(user[0] && strcmp(user, "0") != 0 ? user : "root"));
    json_object_set_new(start, "cwd", json_string(c->cwd[0] ? c->cwd : "/"));
    if (json_array_size(c->ports) == 1 &&
        strtol(json_string_value(json_array_get(c->ports, 0)), NULL, 10) > 0)
        json_object_set_new(
            start, "port",
            json_integer(strtol(json_string_value(json_array_get(c->ports, 0)), NULL, 10)));
    return ERR_OK;
}

static enum err_code put_note(const struct import *m, const char *name, const char *text,
                              struct err *e)
{
    int r = io_create_file_at(m->dir_fd, name, text, strlen(text), 0600);

    return r < 0 ? err_set_sys(e, err_code_from_errno(r), r, "writing %s/%s", m->path, name)
                 : ERR_OK;
}

static enum err_code put_json(const struct import *m, const char *name, const json_t *value,
                              struct err *e)
{
    CLEANUP_FREE char *text = json_dumps(value, JSON_INDENT(1));

    if (!text || strlen(text) > NOTE_BYTES)
        return err_set(e, ERR_TOO_LARGE, "the image's variables and commands are over %u KiB",
                       NOTE_BYTES >> 10);
    return put_note(m, name, text, e);
}

static enum err_code put_notes(const struct import *m, struct err *e)
{
    const struct image_config *c = &m->image.config;
    json_t *start = json_pack("{s:O}", "env", c->env);
    json_t *image = image_config_note(c, m->source, m->image.digest);
    char layers[IMAGE_LAYER_NAMES_SIZE];

    if (image_layer_names("", &m->image.manifest, layers) < 0)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    else if (put_note(m, "layers", layers, e) == ERR_OK &&
             (!cli_flag(m->c, "start") || add_start(m, start, e) == ERR_OK) &&
             put_json(m, "start.json", start, e) == ERR_OK &&
             put_json(m, "image.json", image, e) == ERR_OK && c->cwd[0])
        put_note(m, "cwd", c->cwd, e);
    json_decref(start);
    json_decref(image);
    return e->code;
}

/* -- where it is left -------------------------------------------------------------------------- */

static bool remove_name(void *arg, const char *name)
{
    (void)!unlinkat(*(const int *)arg, name, 0);
    return true;
}

static bool note_name(void *arg, const char *name)
{
    *(bool *)arg = true;
    return false;
}

static int open_dir(int at, const char *name)
{
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    at = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return at < 0 ? -errno : at;
}

/* Such a folder, made where it is missing, and locked: -EWOULDBLOCK where another has it. The
 * server's sweep removes folders that are not locked, so that one that was just made may be gone
 * before it is opened, or locked: it is made again. */
static int open_locked_dir(int at, const char *name)
{
    struct stat st;
    int fd = -ENOENT;

    for (unsigned i = 0; i < SWEPT_MAX && fd == -ENOENT; i++) {
        fd = open_dir(at, name);
        if (fd < 0)
            continue;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (locked && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close(fd);
        fd = locked ? -ENOENT : -EWOULDBLOCK;
    }
    return fd;
}

/* A folder of the name, locked until the end: of two commands for one name at a time the second is
 * refused before it has changed anything. */
static enum err_code lock_name(struct import *m, struct err *e)
{
    CLEANUP_CLOSE int all = image_fetch_open_import(m->c, e);
    char name[128];

    if (all < 0)
        return e->code;
    snprintf(name, sizeof(name), "name-%s", m->name);
    m->name_fd = open_locked_dir(all, name);
    if (m->name_fd == -EWOULDBLOCK)
        return err_set(e, ERR_CONFLICT, "another command imports %s now", m->name);
    if (m->name_fd < 0)
        return err_set_sys(e, err_code_from_errno(m->name_fd), m->name_fd, "making import/%s",
                           name);
    return ERR_OK;
}

static void unlock_name(struct import *m)
{
    char path[PATH_MAX];

    if (m->name_fd < 0)
        return;
    snprintf(path, sizeof(path), "%s/privd/import/name-%s", m->c->settings.state_dir, m->name);
    (void)rmdir(path);
    util_close(&m->name_fd);
}

/* <state>/privd/import/<number>, empty and locked. */
static enum err_code open_spool(struct import *m, unsigned number, struct err *e)
{
    CLEANUP_CLOSE int all = image_fetch_open_import(m->c, e);
    char name[16];

    if (all < 0)
        return e->code;
    snprintf(name, sizeof(name), "%u", number);
    m->dir_fd = open_locked_dir(all, name);
    snprintf(m->path, sizeof(m->path), "%s/privd/import/%u", m->c->settings.state_dir, number);
    if (m->dir_fd == -EWOULDBLOCK) /* its contents are another's */
        return err_set(e, ERR_CONFLICT, "another command uses %s now", m->path);
    if (m->dir_fd < 0)
        return err_set_sys(e, err_code_from_errno(m->dir_fd), m->dir_fd, "making %s", m->path);
    io_each_name_at(m->dir_fd, ".", remove_name, &m->dir_fd);
    return ERR_OK;
}

static void close_spool(struct import *m)
{
    if (m->dir_fd < 0)
        return;
    io_each_name_at(m->dir_fd, ".", remove_name, &m->dir_fd);
    (void)rmdir(m->path);
    util_close(&m->dir_fd);
}

/* A layer of holes is as short as one likes where it comes from, and whole here, on the disk that
 * the daemons write on. */
static enum err_code check_space(const struct import *m, uint64_t bytes, struct err *e)
{
    int r = disk_space_leaves(m->dir_fd, bytes, IMPORT_FREE_PERCENT);

    if (r < 0)
        return err_set_sys(e, ERR_INTERNAL, r, "looking at the disk of %s", m->path);
    if (r > 0)
        return ERR_OK;
    return err_set(e, ERR_NO_SPACE,
                   "with a layer of %llu MiB the disk of %.100s would be left with less than %u %% "
                   "free",
                   (unsigned long long)(bytes >> 20), m->path, IMPORT_FREE_PERCENT);
}

static enum err_code put_layers(const struct import *m, struct err *e)
{
    for (size_t i = 0; i < m->image.manifest.count; i++) {
        CLEANUP_CLOSE int fd = -1;
        char name[24];

        if (check_space(m, m->image.manifest.layers[i].size, e) != ERR_OK)
            return e->code;
        snprintf(name, sizeof(name), "%zu", i);
        fd = openat(m->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return err_set_sys(e, err_code_from_errno(errno), errno, "making %s/%s", m->path, name);
        if (image_copy_layer(&m->image, i, fd, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

static enum err_code request_number(struct import *m, unsigned *number, struct err *e)
{
    json_t *body = json_pack("{s:s, s:s}", "source", m->source, "digest", m->image.digest);
    json_t *answer = NULL;
    char path[160];

    snprintf(path, sizeof(path), "/cay/v1/templates/%s/import", m->name);
    if (api_call(&m->api, "POST", path, body, &answer, e) == ERR_OK)
        *number = (unsigned)json_integer_value(json_object_get(answer, "number"));
    json_decref(body);
    json_decref(answer);
    return e->code;
}

/* The name is given back, so that nothing stays of an import that failed. It may have failed since
 * a daemon was ended: another is there soon, and may have a job that is about to end. */
static void give_back(struct import *m)
{
    uint64_t end = clock_mono_ms() + GIVE_BACK_MS;
    enum err_code code;
    char path[160];
    struct err e;

    snprintf(path, sizeof(path), "/cay/v1/templates/%s", m->name);
    while ((code = api_call(&m->api, "DELETE", path, NULL, NULL, &e)) != ERR_OK &&
           code != ERR_NOT_FOUND && clock_mono_ms() < end)
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000000L}, NULL);
}

/* Removes the folders that killed commands left. An empty folder may be one that is just being
 * made. */
static bool remove_left(void *arg, const char *name)
{
    int import = *(const int *)arg;
    CLEANUP_CLOSE int fd = openat(import, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool any = false;

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return true;
    io_each_name_at(fd, ".", note_name, &any);
    if (!any)
        return true;
    io_each_name_at(fd, ".", remove_name, &fd);
    (void)unlinkat(import, name, AT_REMOVEDIR);
    return true;
}

static enum err_code remove_all_left(const struct import *m, struct err *e)
{
    CLEANUP_CLOSE int import = image_fetch_open_import(m->c, e);

    if (import >= 0)
        io_each_name_at(import, ".", remove_left, &import);
    return e->code;
}

static enum err_code run(struct import *m, struct err *e)
{
    unsigned number = 0;

    if (check_source(m, e) != ERR_OK || lock_name(m, e) != ERR_OK ||
        remove_all_left(m, e) != ERR_OK || open_image(m, e) != ERR_OK ||
        request_number(m, &number, e) != ERR_OK)
        return e->code;
    if (open_spool(m, number, e) == ERR_OK && put_layers(m, e) == ERR_OK &&
        put_notes(m, e) == ERR_OK)
        template_build_follow(m->c, &m->api, m->name, e);
    if (e->code != ERR_OK && !(e->code == ERR_CONFLICT && m->dir_fd < 0))
        give_back(m);
    return e->code;
}

static int finish(struct import *m, uint64_t begun_ms, const struct err *e)
{
    double seconds = (double)(clock_mono_ms() - begun_ms) / 1000;

    if (e->code != ERR_OK)
        return cli_fail(m->c, e);
    if (m->c->json)
        cli_print_json(json_pack("{s:s, s:s, s:s, s:I, s:I}", "template", m->name, "source",
                                 m->source, "digest", m->image.digest, "layers",
                                 (json_int_t)m->image.manifest.count, "elapsedMs",
                                 (json_int_t)(seconds * 1000)));
    else
        printf("%s is ready: %zu layer%s of %s in %.0f s\n", m->name, m->image.manifest.count,
               m->image.manifest.count == 1 ? "" : "s", m->image.digest, seconds);
    return CLI_OK;
}

int cmd_template_import(struct cli *c)
{
    struct import m = {.c = c,
                       .name = c->operands[0],
                       .source = c->operands[1],
                       .image = {.dir_fd = -1, .file_fd = -1},
                       .fetched = IMAGE_FETCH_NONE,
                       .dir_fd = -1,
                       .name_fd = -1};
    uint64_t begun = clock_mono_ms();
    struct err e = {.code = ERR_OK};
    int status;

    if (!template_name_is_own(m.name))
        return cli_usage(c, "\"%s\" cannot be the name of a template of one's own", m.name);
    if (api_open(&m.api, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    run(&m, &e);
    status = finish(&m, begun, &e);
    close_spool(&m);
    image_free(&m.image);
    api_close(&m.api);
    image_fetch_free(&m.fetched);
    unlock_name(&m);
    return status;
}
