#include "job/import.h"

#include "base/io.h"
#include "base/util.h"
#include "contract/meta.h"
#include "job/layers.h"
#include "job/run.h"
#include "job/say.h"
#include "job/template.h"
#include "job/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define PROGRAM    "cay-unpack"
#define SPOOL_SIZE 64

struct said {
    int failure;
    char counts[LAYERS_COUNTS_SIZE];
};

/* "P <percent> <text>" and "E <errno> <text>" are handed on, "C <numbers>" is kept for the next
 * call; what else it writes is dropped. */
static void on_line(void *arg, const char *line)
{
    struct said *said = arg;
    char *rest;
    long n;

    if (line[0] == 'C' && line[1] == ' ' && strspn(line + 2, "0123456789,") == strlen(line + 2))
        snprintf(said->counts, sizeof(said->counts), "%s", line + 2);
    if ((line[0] != 'P' && line[0] != 'E') || line[1] != ' ')
        return;
    n = strtol(line + 2, &rest, 10);
    rest += *rest == ' ';
    if (line[0] == 'P')
        say_progress(n >= 0 && n < 100 ? (unsigned)n : 0, "%s", rest);
    else
        said->failure = say_failure(n > 0 && n < 4096 ? (int)n : EIO, "%s", rest);
}

/* Beside this program. */
static int find_program(char out[static PATH_MAX])
{
    char self[PATH_MAX - sizeof(PROGRAM)];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return -ENOENT;
    *slash = '\0';
    snprintf(out, PATH_MAX, "%s/" PROGRAM, self);
    return access(out, X_OK) < 0 ? -errno : 0;
}

static void spool_name(uint32_t number, char out[static SPOOL_SIZE])
{
    snprintf(out, SPOOL_SIZE, "%s/%u",
             number > META_TEMPLATES_SERVER ? TENANT_IMPORT_DIR : IMPORT_DIR, number);
}

/* n layers from the first on, or, where n is 0, what all templates have. */
static int unpack(uint32_t number, size_t first, size_t n, char counts[static LAYERS_COUNTS_SIZE])
{
    char program[PATH_MAX], spool[SPOOL_SIZE], here[PATH_MAX - 64], tree[PATH_MAX];
    char from[24], many[24], before[LAYERS_COUNTS_SIZE];
    char *argv[] = {program, spool, tree, from, many, before, NULL};
    struct said said = {.failure = 0};
    int r = find_program(program);

    if (r < 0)
        return say_failure(r, PROGRAM " is not there: the installation of cay is not whole");
    if (!getcwd(here, sizeof(here)))
        return say_failure(errno, "cannot tell where templates are");
    spool_name(number, spool);
    snprintf(tree, sizeof(tree), "%s/.build-%u/" TEMPLATE_ROOT, here, number);
    snprintf(from, sizeof(from), "%zu", first);
    snprintf(many, sizeof(many), "%zu", n);
    snprintf(before, sizeof(before), "%s", counts);
    r = run_program(argv, on_line, &said);
    memcpy(counts, said.counts, sizeof(said.counts));
    if (said.failure < 0)
        return said.failure;
    return r == 0 ? 0 : say_failure(EIO, PROGRAM " ended with status %d", r);
}

/* Layer by layer, from the first that is not kept on. */
static int unpack_shared(struct layers *l)
{
    int r = layers_begin(l);

    if (r == 0 && l->have > 0)
        say_progress(5, "%zu of %zu layers are there already", l->have, l->count);
    while (r == 0 && l->have < l->count) {
        r = unpack(l->number, l->have, 1, l->counts);
        if (r == 0)
            r = layers_keep(l);
    }
    return r;
}

static int unpack_own(struct layers *l)
{
    int r = template_begin(l->number);

    return r == 0 ? unpack(l->number, 0, LAYERS_MAX, l->counts) : r;
}

/* The last of the numbers: bytes of contents that all layers wrote, of which a higher one may have
 * replaced some: they are on the disk as long as the layer is kept. */
static uint64_t contents_of(const char *counts)
{
    const char *last = strrchr(counts, ',');

    return last ? strtoull(last + 1, NULL, 10) : 0;
}

/* The layers that it made go at once: no template counts with them, and the next sweep may be long
 * in coming. */
static void give_up(uint32_t number)
{
    template_abandon(number);
    if (layers_sweep() < 0)
        say_progress(100, "its layers could not be removed; it is tried again");
}

int import_build(uint32_t number)
{
    char spool[SPOOL_SIZE], counts[LAYERS_COUNTS_SIZE];
    static struct layers layers;
    uint64_t contents;
    int r;

    spool_name(number, spool);
    r = layers_read(spool, number, template_first_inode(), &layers);
    if (r < 0)
        return say_failure(r, "the list of the image's layers cannot be read: import it again");
    r = layers.count > 0 ? unpack_shared(&layers) : unpack_own(&layers);
    contents = layers.count > 0 ? MAX(contents_of(layers.counts), layers_bytes(&layers)) : 0;
    memcpy(counts, layers.counts, sizeof(counts));
    if (r == 0)
        r = unpack(number, 0, 0, counts);
    if (r == 0) {
        say_progress(95, "putting it in its place");
        r = template_commit(number, "", contents);
    }
    if (r < 0)
        give_up(number);
    return r;
}

static bool sweep_name(void *arg, const char *name)
{
    CLEANUP_CLOSE int fd = -1;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), IMPORT_DIR "/%.200s", name);
    fd = open(path, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && tree_remove(path) < 0)
        say_progress(50, "%s could not be removed", path);
    return true;
}

int import_sweep(void)
{
    int r = io_each_name_at(AT_FDCWD, IMPORT_DIR, sweep_name, NULL);

    return r == -ENOENT ? 0 : r;
}
