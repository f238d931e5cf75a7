#include "egress/flow/names_kept.h"

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/names.h"
#include "egress/flow/registry_internal.h"
#include "egress/flow/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "names-"

/* Anything else is part of one, whose writer was killed. */
#define LINE           "%u %s;\n"
#define LINE_MAX_BYTES (POLICY_NAME_MAX + 16u)
#define FILE_MAX_BYTES (NAMES_MAX * LINE_MAX_BYTES)

static bool path_of_slot(const struct egress *eg, uint32_t slot, char out[static PATH_MAX])
{
    int n = eg->config.state_dir
                ? snprintf(out, PATH_MAX, "%s/" PREFIX "%u", eg->config.state_dir, slot)
                : -1;

    return n > 0 && n < PATH_MAX;
}

static bool path_of(const struct sandbox *s, char out[static PATH_MAX])
{
    return path_of_slot(s->egress, s->slot, out);
}

static int open_file(const char *path, int flags)
{
    return open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

static void say(const struct sandbox *s, int rc)
{
    log_warn("slot %u: " PREFIX
             "%u cannot be written (%s): where two of its names have one number, "
             "addresses may change their meaning when cay-egress is restarted",
             s->slot, s->slot, strerror(-rc));
}

static void add_line(void *arg, uint32_t number, const char *name)
{
    char line[LINE_MAX_BYTES + 1];
    int n = snprintf(line, sizeof(line), LINE, number, name);

    (void)!buf_append(arg, line, (size_t)n);
}

/* Begun anew, with those that were asked for before the id had come. */
static int begin(const struct sandbox *s, const char *path)
{
    CLEANUP_CLOSE int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    CLEANUP_BUF struct buf text;

    buf_init(&text, FILE_MAX_BYTES);
    if (fd < 0)
        return -errno;
    if (buf_printf(&text, "%s\n", s->id) < 0)
        return -ENOMEM;
    names_each(s->names, add_line, &text);
    return io_write_full(fd, text.data, text.len);
}

static void restore_line(const struct sandbox *s, char *line)
{
    char *name, *end = strchr(line, ';');
    unsigned long number = strtoul(line, &name, 10);

    if (!end || end[1] || *name != ' ' || strchr(name + 1, ' ') || number > NAMES_LAST)
        return;
    *end = '\0';
    (void)names_restore(s->names, (uint32_t)number, name + 1);
}

/* Of a file of this sandbox. False: it is another's, or none. */
static bool restore(const struct sandbox *s, const char *path)
{
    CLEANUP_FREE char *text = malloc(FILE_MAX_BYTES + 1);
    ssize_t n = text ? io_read_text_at(AT_FDCWD, path, text, FILE_MAX_BYTES + 1) : -ENOMEM;
    char *at = text, *line;

    if (n <= 0 || !(line = strsep(&at, "\n")) || strcmp(line, s->id) != 0)
        return false;
    while ((line = strsep(&at, "\n")))
        restore_line(s, line);
    return true;
}

static void on_new(void *arg, uint32_t number, const char *name)
{
    const struct sandbox *s = arg;
    char path[PATH_MAX], line[LINE_MAX_BYTES + 1];
    CLEANUP_CLOSE int fd = path_of(s, path) ? open_file(path, O_WRONLY | O_APPEND) : -1;
    int n = snprintf(line, sizeof(line), LINE, number, name);
    int rc = fd < 0 ? -errno : io_write_full(fd, line, (size_t)n);

    if (rc >= 0)
        return;
    say(s, rc);
    names_watch(s->names, NULL, NULL);
}

void names_kept_open(struct sandbox *s)
{
    char path[PATH_MAX];
    int rc;

    names_watch(s->names, NULL, NULL);
    if (!path_of(s, path))
        return;
    rc = restore(s, path) ? 0 : begin(s, path);
    if (rc < 0)
        say(s, rc);
    else
        names_watch(s->names, on_new, s);
}

static void drop(const struct egress *eg, uint32_t slot)
{
    char path[PATH_MAX];

    if (path_of_slot(eg, slot, path) && unlinkat(AT_FDCWD, path, 0) < 0 && errno != ENOENT)
        log_warn("slot %u: " PREFIX "%u cannot be removed: %s", slot, slot, strerror(errno));
}

void names_kept_drop(const struct sandbox *s)
{
    if (!s->parent)
        drop(s->egress, s->slot);
}

/* -- of an earlier process --------------------------------------------------------------------- */

/* REGISTRY_SLOTS_MAX: it is no such file of this process's. */
static uint32_t slot_of(const struct egress *eg, const char *name)
{
    unsigned long slot;
    char *end;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || name[strlen(PREFIX)] < '0' ||
        name[strlen(PREFIX)] > '9')
        return REGISTRY_SLOTS_MAX;
    slot = strtoul(name + strlen(PREFIX), &end, 10);
    return *end == '\0' && slot < REGISTRY_SLOTS_MAX && slot % eg->config.shards == eg->config.shard
               ? (uint32_t)slot
               : REGISTRY_SLOTS_MAX;
}

int names_kept_find(struct egress *eg)
{
    DIR *d = opendir(eg->config.state_dir);
    struct dirent *entry;
    int rc = -errno;

    if (!d)
        return rc;
    eg->names_left = calloc(REGISTRY_SLOTS_MAX / 8, 1);
    while (eg->names_left && (errno = 0, (entry = readdir(d)))) {
        uint32_t slot = slot_of(eg, entry->d_name);

        if (slot < REGISTRY_SLOTS_MAX)
            eg->names_left[slot / 8] |= (unsigned char)(1u << slot % 8);
    }
    rc = eg->names_left ? -errno : -ENOMEM;
    closedir(d);
    return rc;
}

void names_kept_sweep(struct egress *eg)
{
    for (uint32_t i = 0; eg->names_left && i < REGISTRY_SLOTS_MAX; i++)
        if (eg->names_left[i / 8] & 1u << i % 8 && !eg->registry->slots[i])
            drop(eg, i);
    free(eg->names_left);
    eg->names_left = NULL;
}
