/* Fetching by skopeo. The folder is of skopeo's form "dir", which keeps the manifest as the
 * registry has it, and so its digest. The image is read as any other: skopeo is not believed. */

#include "cli/image_fetch.h"

#include "cli/skopeo.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGISTRY "docker://"

bool image_fetch_is_source(const char *source)
{
    return strncmp(source, REGISTRY, strlen(REGISTRY)) == 0;
}

/* -- the folder -------------------------------------------------------------------------------- */

int image_fetch_open_import(const struct cli *c, struct err *e)
{
    CLEANUP_CLOSE int state = -1;
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/privd", c->settings.state_dir);
    state = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (state < 0) {
        err_set_sys(e, err_code_from_errno(errno), errno, "opening %s", path);
        err_hint(e,
                 "images are imported by root on the server's machine; --state-dir=DIR says where "
                 "its state is");
        return -1;
    }
    if (mkdirat(state, "import", 0700) < 0 && errno != EEXIST)
        fd = -1;
    else
        fd = openat(state, "import", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        err_set_sys(e, err_code_from_errno(errno), errno, "making %s/import", path);
    return fd;
}

/* Locked: the server's sweep leaves it alone, until this command is gone. */
static enum err_code make_dir(const struct cli *c, struct image_fetch *f, struct err *e)
{
    CLEANUP_CLOSE int import = image_fetch_open_import(c, e);

    if (import < 0)
        return e->code;
    snprintf(f->dir, sizeof(f->dir), "%s/privd/import/fetch-XXXXXX", c->settings.state_dir);
    if (!mkdtemp(f->dir)) {
        f->dir[0] = '\0';
        return err_set_sys(e, ERR_INTERNAL, errno, "making a folder for the image");
    }
    f->lock_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->lock_fd < 0 || flock(f->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "locking %s", f->dir);
    return ERR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

static void set_arguments(struct skopeo *s, const struct cli *c, const char *source, const char *to)
{
    skopeo_add(s, "skopeo");
    skopeo_add_option(s, c, "signature-policy", "--policy");
    skopeo_add(s, "--override-os=linux");
    skopeo_add(s, "--override-arch=amd64");
    skopeo_add(s, "copy");
    skopeo_add(s, "--quiet");
    skopeo_add(s, "--remove-signatures"); /* checked, but not kept */
    skopeo_add_option(s, c, "authfile", "--src-authfile");
    skopeo_add_option(s, c, "cert-dir", "--src-cert-dir");
    if (cli_flag(c, "plain-http"))
        skopeo_add(s, "--src-tls-verify=false");
    skopeo_add(s, "--");
    skopeo_add(s, source);
    skopeo_add(s, to);
}

enum err_code image_fetch(const struct cli *c, const char *source, struct image_fetch *f,
                          struct image *out, struct err *e)
{
    struct skopeo s = {.dir = f->dir,
                       .file_fd = -1,
                       .digest_fd = -1,
                       .verb = "fetch",
                       .late = "send the whole image"};
    char to[PATH_MAX + 8];

    if (skopeo_check("fetched", e) != ERR_OK || skopeo_read_timeout(&s, c, e) != ERR_OK ||
        make_dir(c, f, e) != ERR_OK)
        return e->code;
    snprintf(to, sizeof(to), "dir:%s", f->dir);
    set_arguments(&s, c, source, to);
    cli_note(c, "cay: skopeo fetches %s", source);
    return skopeo_run(&s, e) == ERR_OK ? image_open(to, out, e) : e->code;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path) < 0 ? -1 : 0;
}

void image_fetch_free(struct image_fetch *f)
{
    if (f->dir[0])
        (void)nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    util_close(&f->lock_fd);
}
