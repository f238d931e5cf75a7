/* cay-unpack: makes the files of a template out of the layers of an image. `cay-unpack SPOOL TREE
 * FIRST N COUNTS`: SPOOL has the layers as files 0, 1, ... (what the image's manifest calls
 * layers, lowest first), start.json and image.json, and cwd where the image names a folder; TREE
 * has the files of the layers below FIRST. N layers are put over them; with N 0 what every
 * template has is added. Limits are the image's, so COUNTS ("" at first) is what the call before
 * said of its own in a line "C NUMBERS"; only this program understands them.
 *
 * Started by cay-job as root; it opens what is in SPOOL, enters its walls, and only then reads.
 * Says what cay-job's other programs say (contract/meta.h). A program of its own, so that nothing
 * that keeps privileges links libarchive. */
#include "base/buf.h"
#include "base/io.h"
#include "contract/meta.h"
#include "unpack/additions.h"
#include "unpack/layer.h"
#include "unpack/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LAYERS_MAX 128u /* src/image/manifest.h has the same */

static bool has_ended; /* by its own decision */

struct work {
    const char *from, *tree, *counts;
    size_t first, n;
};

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

static enum err_code unpack_layers(const struct work *w, const struct spool *s, struct unpack *u,
                                   struct err *e)
{
    for (size_t i = w->first; i < s->count && i - w->first < w->n; i++) {
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
    /* Names of the image's are among it: a line of theirs would be taken for this program's. */
    for (size_t i = 0; i < said.len; i++)
        if (said.data[i] == '\n')
            said.data[i] = '?';
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

/* -- counts ------------------------------------------------------------------------------------ */

#define COUNTS 7

/* written is among them, since the room on the disk is looked at by it. */
static void list_counts(struct unpack *u, uint64_t *out[static COUNTS])
{
    uint64_t *all[COUNTS] = {&u->entries,  &u->bytes,          &u->written, &u->read,
                             &u->left_out, &u->set_id_dropped, &u->contents};

    memcpy(out, all, sizeof(all));
}

static bool read_counts(const char *text, struct unpack *u)
{
    uint64_t *all[COUNTS];

    list_counts(u, all);
    if (text[0] == '\0')
        return true;
    for (size_t i = 0; i < COUNTS; i++) {
        char *end;

        *all[i] = strtoull(text, &end, 10);
        if (end == text || *end != (i == COUNTS - 1 ? '\0' : ','))
            return false;
        text = end + 1;
    }
    return true;
}

static void say_counts(struct unpack *u)
{
    uint64_t *all[COUNTS];

    list_counts(u, all);
    for (size_t i = 0; i < COUNTS; i++)
        printf("%s%" PRIu64, i == 0 ? "C " : ",", *all[i]);
    printf("\n");
}

/* -- the whole --------------------------------------------------------------------------------- */

static int run(const struct work *w)
{
    struct spool spool = {.start_fd = -1, .image_fd = -1, .cwd_fd = -1};
    struct unpack u = {.root_fd = -1};
    struct err e = {.code = ERR_OK};
    const char *what = "the counts of the layers below";
    int r = read_counts(w->counts, &u) ? 0 : -EINVAL;

    if (r == 0 && open_spool(w->from, &spool, &e) != ERR_OK)
        return fail(&e);
    if (r == 0)
        r = walls_enter(w->tree, &what);
    if (r == 0)
        u.root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r < 0 || u.root_fd < 0) {
        err_set_sys(&e, ERR_INTERNAL, r < 0 ? r : errno, "%s", what);
        return fail(&e);
    }
    if (w->n == 0 ? finish(&spool, &u, &e) != ERR_OK : unpack_layers(w, &spool, &u, &e) != ERR_OK)
        return fail(&e);
    say_counts(&u);
    return 0;
}

static bool is_number(const char *text)
{
    return text[0] && strlen(text) <= 4 && strspn(text, "0123456789") == strlen(text);
}

int main(int argc, char **argv)
{
    struct work w;
    int status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    setlocale(LC_CTYPE, "C.UTF-8"); /* names of pax headers are UTF-8 */
    umask(0);
    if (argc != 6 || argv[2][0] != '/' || !is_number(argv[3]) || !is_number(argv[4])) {
        fprintf(stderr, "usage: cay-unpack SPOOL TREE FIRST N COUNTS   (started by cay-job)\n");
        return 2;
    }
    w = (struct work){argv[1], argv[2], argv[5], strtoul(argv[3], NULL, 10),
                      strtoul(argv[4], NULL, 10)};
    if (atexit(on_exit_of_another) != 0)
        return 1;
    status = run(&w);
    has_ended = true;
    return status;
}
