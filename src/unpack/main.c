/* cay-unpack: makes the files of a template out of the layers of an image. `cay-unpack SPOOL
 * TREE`: SPOOL has the layers as files 0, 1, ... (what the image's manifest calls layers, lowest
 * first), start.json and image.json, and cwd where the image names a folder; TREE is an empty
 * folder. Started by cay-job as root; it opens what is in SPOOL, enters its walls, and only then
 * reads. Says what cay-job's other programs say (contract/meta.h). A program of its own, so that
 * nothing that keeps privileges links libarchive. */
#include "base/buf.h"
#include "base/io.h"
#include "contract/meta.h"
#include "unpack/additions.h"
#include "unpack/layer.h"
#include "unpack/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LAYERS_MAX 128u /* src/image/manifest.h has the same */

static bool has_ended; /* by its own decision */

struct spool {
    int layers[LAYERS_MAX];
    size_t count;
    int start_fd, image_fd, cwd_fd;
};

static int fail(const struct err *e)
{
    int fallback = e->code == ERR_NOT_FOUND ? ENOENT : e->code == ERR_NO_SPACE ? ENOSPC : EINVAL;

    printf("E %d %s\n", e->sys ? abs(e->sys) : fallback, e->text);
    return 1;
}

/* libarchive ends the process where it gets no memory. */
static void on_exit_of_another(void)
{
    if (!has_ended)
        printf("E %d reading the image takes over %u MiB of memory\n", ENOMEM,
               WALLS_MEMORY_BYTES >> 20);
}

/* Written by root alone: regular files, no links. -1: there is none. */
static int open_one(int dir_fd, const char *name)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? TAKE_FD(fd) : -1;
}

static enum err_code open_spool(const char *path, struct spool *s, struct err *e)
{
    CLEANUP_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char name[16];

    if (dir < 0)
        return err_set(e, ERR_NOT_FOUND,
                       "no image was given to this template: see `cay template import`");
    for (s->count = 0; s->count < LAYERS_MAX; s->count++) {
        snprintf(name, sizeof(name), "%zu", s->count);
        s->layers[s->count] = open_one(dir, name);
        if (s->layers[s->count] < 0)
            break;
    }
    s->start_fd = open_one(dir, "start.json");
    s->image_fd = open_one(dir, "image.json");
    s->cwd_fd = open_one(dir, "cwd");
    return s->count > 0 && s->start_fd >= 0 && s->image_fd >= 0
               ? ERR_OK
               : err_set(e, ERR_NOT_FOUND, "the image was not given whole: import it again");
}

static enum err_code unpack_all(const struct spool *s, struct unpack *u, struct err *e)
{
    for (size_t i = 0; i < s->count; i++) {
        struct err why;

        printf("P %zu layer %zu of %zu\n", 5 + i * 80 / s->count, i + 1, s->count);
        if (layer_unpack(u, s->layers[i], i == 0, &why) != ERR_OK) {
            err_set(e, why.code, "layer %zu: %s", i + 1, why.text);
            e->sys = why.sys;
            return e->code;
        }
    }
    return ERR_OK;
}

static enum err_code finish(const struct spool *s, const struct unpack *u, struct err *e)
{
    CLEANUP_BUF struct buf said;
    struct additions a = {.root_fd = u->root_fd,
                          .start_fd = s->start_fd,
                          .image_fd = s->image_fd,
                          .cwd_fd = s->cwd_fd,
                          .said = &said};

    buf_init(&said, 4096);
    if (additions_put(&a, e) != ERR_OK)
        return e->code;
    if (u->left_out)
        printf("P 90 left out %llu devices, FIFOs and sockets\n", (unsigned long long)u->left_out);
    if (u->set_id_dropped)
        printf("P 90 %llu files lost their set-id bits: they have cay-init's own id\n",
               (unsigned long long)u->set_id_dropped);
    for (char *at = said.len ? said.data : NULL, *next; at; at = next) {
        next = strstr(at, "; ");
        if (next) {
            *next = '\0';
            next += 2;
        }
        printf("P 90 %s\n", at);
    }
    return ERR_OK;
}

static int run(const char *from, const char *tree)
{
    struct spool spool = {.start_fd = -1, .image_fd = -1, .cwd_fd = -1};
    struct unpack u = {.root_fd = -1};
    struct err e = {.code = ERR_OK};
    const char *what = "";
    int r;

    if (open_spool(from, &spool, &e) != ERR_OK)
        return fail(&e);
    r = walls_enter(tree, &what);
    if (r == 0)
        u.root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r < 0 || u.root_fd < 0) {
        err_set_sys(&e, ERR_INTERNAL, r < 0 ? r : errno, "%s", what);
        return fail(&e);
    }
    if (unpack_all(&spool, &u, &e) != ERR_OK || finish(&spool, &u, &e) != ERR_OK)
        return fail(&e);
    return 0;
}

int main(int argc, char **argv)
{
    int status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    setlocale(LC_CTYPE, "C.UTF-8"); /* names of pax headers are UTF-8 */
    umask(0);
    if (argc != 3 || argv[2][0] != '/') {
        fprintf(stderr, "usage: cay-unpack SPOOL TREE   (started by cay-job)\n");
        return 2;
    }
    if (atexit(on_exit_of_another) != 0)
        return 1;
    status = run(argv[1], argv[2]);
    has_ended = true;
    return status;
}
