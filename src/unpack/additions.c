#include "unpack/additions.h"

#include "base/io.h"
#include "contract/proto.h"
#include "unpack/tree_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ACCOUNTS_MAX (1024u * 1024) /* bytes of /etc/passwd and its like */
#define NOTES_MAX    (64u * 1024)
#define ID_FIRST     1000u
#define ID_LAST      60000u

static const struct {
    const char *path;
    mode_t mode;
    bool is_mount_point; /* has to be a folder in its own right */
} dirs[] = {
    {"proc", 0555, true},      {"sys", 0555, true},   {"dev", 0755, true},
    {"run", 0755, true},       {"etc", 0755, true},   {"tmp", 01777, false},
    {"root", 0700, false},     {"home", 0755, false}, {"var", 0755, false},
    {"var/tmp", 01777, false}, {"mnt", 0755, false},  {"opt", 0755, false},
    {"etc/cay", 0755, true},
};

static const char *const users[] = {"user", "daytona"}; /* E2B's, Daytona's */

static void say(const struct additions *a, const char *fmt, ...) PRINTF(2, 3);

static void say(const struct additions *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (a->said->len == 0 || buf_append_str(a->said, "; ") == 0)
        (void)!buf_vprintf(a->said, fmt, ap);
    va_end(ap);
}

static enum err_code fail_on(struct err *e, int r, const char *path)
{
    return err_set_sys(e, err_code_from_errno(r), r, "adding %s", path);
}

/* -- pieces ------------------------------------------------------------------------------------ */

static enum err_code put_dir(const struct additions *a, const char *path, mode_t mode, bool insists,
                             uid_t owner, struct err *e)
{
    CLEANUP(tree_entry_close) struct tree_entry p = TREE_ENTRY_NONE;
    struct stat st;
    int r;

    if (tree_entry_open(a->root_fd, path, true, &p, e) != ERR_OK)
        return insists ? e->code : ERR_OK;
    r = tree_entry_stat(&p, &st);
    if (r == 0 && (S_ISDIR(st.st_mode) || (S_ISLNK(st.st_mode) && !insists)))
        return ERR_OK;
    r = tree_entry_remove(&p);
    if (r == 0 && (mkdirat(p.dir_fd, p.name, 0700) < 0 ||
                   fchownat(p.dir_fd, p.name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ||
                   fchmodat(p.dir_fd, p.name, mode, 0) < 0))
        r = -errno;
    return r < 0 ? fail_on(e, r, path) : ERR_OK;
}

static enum err_code put_file(const struct additions *a, const char *path, mode_t mode,
                              const char *text, size_t len, struct err *e)
{
    CLEANUP(tree_entry_close) struct tree_entry p = TREE_ENTRY_NONE;
    CLEANUP_CLOSE int fd = -1;
    int r;

    if (tree_entry_open(a->root_fd, path, true, &p, e) != ERR_OK)
        return e->code;
    r = tree_entry_remove(&p);
    if (r == 0)
        fd = openat(p.dir_fd, p.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (r == 0 && (fd < 0 || fchmod(fd, mode) < 0))
        r = -errno;
    if (r == 0)
        r = io_write_full(fd, text, len);
    return r < 0 ? fail_on(e, r, path) : ERR_OK;
}

/* The text of a file, "" where there is none in its own right. */
static enum err_code read_file(const struct additions *a, const char *path, struct buf *out,
                               bool *there, struct err *e)
{
    CLEANUP(tree_entry_close) struct tree_entry p = TREE_ENTRY_NONE;
    CLEANUP_CLOSE int fd = -1;
    struct stat st;

    *there = false;
    buf_init(out, ACCOUNTS_MAX + 4096);
    if (buf_append(out, "", 0) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (tree_entry_open(a->root_fd, path, true, &p, e) != ERR_OK)
        return e->code;
    if (tree_entry_stat(&p, &st) < 0 || !S_ISREG(st.st_mode))
        return ERR_OK;
    if (st.st_size > ACCOUNTS_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s has over %u bytes", path, ACCOUNTS_MAX);
    fd = openat(p.dir_fd, p.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || buf_reserve(out, (size_t)st.st_size + 2) < 0 ||
        io_read_full(fd, out->data + out->len, (size_t)st.st_size) < 0)
        return fail_on(e, fd < 0 ? errno : EIO, path);
    buf_commit(out, (size_t)st.st_size);
    *there = true;
    if (out->len > 0 && out->data[out->len - 1] != '\n' && buf_append(out, "\n", 1) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    return ERR_OK;
}

/* -- accounts ---------------------------------------------------------------------------------- */

/* Field number `at` of a line of passwd or group; its length into *len. */
static const char *field(const char *line, unsigned at, size_t *len)
{
    for (; at > 0; at--) {
        line += strcspn(line, ":\n");
        if (*line != ':')
            return NULL;
        line++;
    }
    *len = strcspn(line, ":\n");
    return line;
}

static bool has_field(const char *text, unsigned at, const char *value)
{
    size_t len, want = strlen(value);

    for (const char *line = text; line && *line;
         line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *f = field(line, at, &len);

        if (f && len == want && memcmp(f, value, len) == 0)
            return true;
    }
    return false;
}

/* Sets the bit of each id that a line of passwd or group has. */
static void mark_ids(const char *text, uint8_t used[static ID_LAST / 8 + 1])
{
    size_t len;

    for (const char *line = text; line && *line;
         line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *f = field(line, 2, &len);
        unsigned long id = f && len > 0 ? strtoul(f, NULL, 10) : ID_LAST;

        if (id < ID_LAST)
            used[id / 8] |= (uint8_t)(1u << id % 8);
    }
}

/* Free as a user's and as a group's, so that both can be the same. ID_LAST: there is none. Each
 * text is read once: the image says how many ids are taken. */
static unsigned free_id(const struct buf *passwd, const struct buf *group)
{
    uint8_t used[ID_LAST / 8 + 1] = {0};

    mark_ids(passwd->data, used);
    mark_ids(group->data, used);
    for (unsigned id = ID_FIRST; id < ID_LAST; id++)
        if (!(used[id / 8] & 1u << id % 8))
            return id;
    return ID_LAST;
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111);
}

static const char *shell(void)
{
    return is_program("/bin/bash") || is_program("/usr/bin/bash") ? "/bin/bash" : "/bin/sh";
}

struct accounts {
    struct buf passwd, group, shadow;
    bool passwd_there, group_there, shadow_there;
};

static void accounts_free(struct accounts *c)
{
    buf_free(&c->passwd);
    buf_free(&c->group);
    buf_free(&c->shadow);
}

static enum err_code add_user(const struct additions *a, struct accounts *c, const char *name,
                              struct err *e)
{
    unsigned id;
    char home[64];
    int r = 0;

    if (has_field(c->passwd.data, 0, name))
        return ERR_OK;
    id = free_id(&c->passwd, &c->group);
    if (id == ID_LAST)
        return err_set(e, ERR_INVALID, "/etc/passwd and group leave no id from %u to %u to %s",
                       ID_FIRST, ID_LAST - 1, name);
    snprintf(home, sizeof(home), "home/%s", name);
    r = buf_printf(&c->passwd, "%s:x:%u:%u::/%s:%s\n", name, id, id, home, shell());
    if (r == 0 && !has_field(c->group.data, 0, name))
        r = buf_printf(&c->group, "%s:x:%u:\n", name, id);
    if (r == 0 && c->shadow_there && !has_field(c->shadow.data, 0, name))
        r = buf_printf(&c->shadow, "%s:*:19000:0:99999:7:::\n", name);
    if (r < 0)
        return fail_on(e, r, "/etc/passwd");
    say(a, "added the user %s (%u)", name, id);
    return put_dir(a, home, 0755, true, id, e);
}

static enum err_code add_root(struct accounts *c, struct err *e)
{
    int r = 0;

    if (!has_field(c->passwd.data, 0, "root"))
        r = buf_printf(&c->passwd, "root:x:0:0:root:/root:%s\n", shell());
    if (r == 0 && !has_field(c->group.data, 0, "root"))
        r = buf_append_str(&c->group, "root:x:0:\n");
    return r < 0 ? fail_on(e, r, "/etc/passwd") : ERR_OK;
}

static enum err_code put_accounts(const struct additions *a, struct err *e)
{
    CLEANUP(accounts_free) struct accounts c = {.passwd_there = false};

    if (read_file(a, "etc/passwd", &c.passwd, &c.passwd_there, e) != ERR_OK ||
        read_file(a, "etc/group", &c.group, &c.group_there, e) != ERR_OK ||
        read_file(a, "etc/shadow", &c.shadow, &c.shadow_there, e) != ERR_OK ||
        add_root(&c, e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < ARRAY_SIZE(users); i++)
        if (add_user(a, &c, users[i], e) != ERR_OK)
            return e->code;
    if (put_file(a, "etc/passwd", 0644, c.passwd.data, c.passwd.len, e) != ERR_OK ||
        put_file(a, "etc/group", 0644, c.group.data, c.group.len, e) != ERR_OK)
        return e->code;
    return c.shadow_there ? put_file(a, "etc/shadow", 0600, c.shadow.data, c.shadow.len, e)
                          : ERR_OK;
}

/* -- programs ---------------------------------------------------------------------------------- */

/* SDKs run commands as `/bin/bash -l -c TEXT`; every POSIX shell takes the same. */
static const char bash[] = "#!/bin/sh\n# This image has no bash: clients' commands are for sh.\n"
                           "exec /bin/sh \"$@\"\n";

static enum err_code put_bash(const struct additions *a, struct err *e)
{
    enum err_code code;

    if (is_program("/bin/bash"))
        return ERR_OK;
    if (!is_program("/bin/sh")) {
        say(a, "there is no shell: clients can run programs by their paths only");
        return ERR_OK;
    }
    say(a, "added /bin/bash, a script that runs sh");
    code = put_file(a, "bin/bash", 0755, bash, strlen(bash), e);
    /* /bin may be a link into /usr */
    return code == ERR_INVALID ? put_file(a, "usr/bin/bash", 0755, bash, strlen(bash), e) : code;
}

static enum err_code put_sudo(const struct additions *a, struct err *e)
{
    static const char rules[] = "Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD:ALL\n"
                                "daytona ALL=(ALL:ALL) NOPASSWD:ALL\n";

    if (!is_program("/usr/bin/sudo")) {
        say(a, "there is no sudo: clients name root as the user instead");
        return ERR_OK;
    }
    return put_file(a, "etc/sudoers.d/cay", 0440, rules, strlen(rules), e);
}

/* -- the whole --------------------------------------------------------------------------------- */

static enum err_code copy_note(const struct additions *a, int fd, const char *path, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    ssize_t n;

    if (fd < 0)
        return ERR_OK;
    text = malloc(NOTES_MAX);
    n = text ? pread(fd, text, NOTES_MAX, 0) : -1;
    return n < 0 ? fail_on(e, text ? errno : ENOMEM, path)
                 : put_file(a, path, 0644, text, (size_t)n, e);
}

/* WORKDIR, which the image need not have: Docker makes it then. Through links of the image too, as
 * a program in a sandbox would get there: the tree is the root. Where that fails it is said. */
static enum err_code put_cwd(const struct additions *a, struct err *e)
{
    char path[TREE_ENTRY_PATH_MAX + 2];
    ssize_t n = a->cwd_fd < 0 ? 0 : pread(a->cwd_fd, path, sizeof(path), 0);
    struct stat st;

    if (n < 0)
        return fail_on(e, errno, "the image's folder");
    if (n == 0 || n == sizeof(path) || path[0] != '/')
        return ERR_OK;
    path[n] = '\0';
    if (strlen(path) != (size_t)n || stat(path, &st) == 0)
        return ERR_OK;
    for (char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        (void)mkdirat(AT_FDCWD, path, 0755);
        if (slash)
            *slash = '/';
    }
    say(a, stat(path, &st) == 0 ? "added the folder %.100s" : "the folder %.100s cannot be made",
        path);
    return ERR_OK;
}

enum err_code additions_put(const struct additions *a, struct err *e)
{
    static const char names[] = "nameserver " EGRESS_RESOLVER "\noptions timeout:2 attempts:2\n";

    *e = (struct err){.code = ERR_OK};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (put_dir(a, dirs[i].path, dirs[i].mode, dirs[i].is_mount_point, 0, e) != ERR_OK)
            return e->code;
    if (put_accounts(a, e) != ERR_OK || put_bash(a, e) != ERR_OK || put_sudo(a, e) != ERR_OK ||
        put_cwd(a, e) != ERR_OK ||
        put_file(a, "etc/resolv.conf", 0644, names, strlen(names), e) != ERR_OK ||
        copy_note(a, a->start_fd, "etc/cay/start.json", e) != ERR_OK)
        return e->code;
    return copy_note(a, a->image_fd, "etc/cay/image.json", e);
}
