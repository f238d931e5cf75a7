#include "job/import.h"

#include "base/io.h"
#include "base/util.h"
#include "contract/meta.h"
#include "job/run.h"
#include "job/say.h"
#include "job/template.h"
#include "job/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#define PROGRAM "cay-unpack"

/* "P <percent> <text>" and "E <errno> <text>" are handed on; what else it writes is dropped. */
static void on_line(void *arg, const char *line)
{
    int *failure = arg;
    char *rest;
    long n;

    if ((line[0] != 'P' && line[0] != 'E') || line[1] != ' ')
        return;
    n = strtol(line + 2, &rest, 10);
    rest += *rest == ' ';
    if (line[0] == 'P')
        say_progress(n >= 0 && n < 100 ? (unsigned)n : 0, "%s", rest);
    else
        *failure = say_failure(n > 0 && n < 4096 ? (int)n : EIO, "%s", rest);
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

static int unpack(uint32_t number)
{
    char program[PATH_MAX], spool[64], here[PATH_MAX - 64], tree[PATH_MAX];
    char *argv[] = {program, spool, tree, NULL};
    int failure = 0, r = find_program(program);

    if (r < 0)
        return say_failure(r, PROGRAM " is not there: the installation of cay is not whole");
    if (!getcwd(here, sizeof(here)))
        return say_failure(errno, "cannot tell where templates are");
    snprintf(spool, sizeof(spool), "%s/%u",
             number > META_TEMPLATES_SERVER ? TENANT_IMPORT_DIR : IMPORT_DIR, number);
    snprintf(tree, sizeof(tree), "%s/.build-%u/" TEMPLATE_ROOT, here, number);
    r = run_program(argv, on_line, &failure);
    if (failure < 0)
        return failure;
    return r == 0 ? 0 : say_failure(EIO, PROGRAM " ended with status %d", r);
}

int import_build(uint32_t number)
{
    int r = template_begin(number);

    if (r == 0)
        r = unpack(number);
    if (r == 0) {
        say_progress(95, "putting it in its place");
        r = template_commit(number, "");
    }
    if (r < 0)
        template_abandon(number);
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
