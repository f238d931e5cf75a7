/* Names and ids are looked up in the sandbox's own /etc/passwd and /etc/group, anew for each
 * request, since a tenant may have changed them; a listing of files remembers both for its own
 * length (struct user_names). Those files are a tenant's: they are opened so that nothing in
 * their place can make us wait, their size is bounded, and a line that is not well formed is no
 * line. */

#include "agent/common/user.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PASSWD_FILE   "/etc/passwd"
#define GROUP_FILE    "/etc/group"
#define PASSWD_FIELDS 7
#define GROUP_FIELDS  4
#define BASIC_MAX     512 /* characters of base64 */

struct span {
    const char *at;
    size_t len;
};

/* Splits a line into exactly `want` fields; the last takes the rest. False for a line without
 * them. */
static bool split_line(struct span line, struct span *fields, size_t want)
{
    for (size_t i = 0; i + 1 < want; i++) {
        const char *colon = memchr(line.at, ':', line.len);

        if (!colon)
            return false;
        fields[i] = (struct span){line.at, (size_t)(colon - line.at)};
        line.len -= fields[i].len + 1;
        line.at = colon + 1;
    }
    fields[want - 1] = line;
    return true;
}

/* Takes the next line off *rest. False at the end. */
static bool next_line(const char **rest, struct span *line)
{
    const char *end;

    if (**rest == '\0')
        return false;
    end = strchrnul(*rest, '\n');
    *line = (struct span){*rest, (size_t)(end - *rest)};
    *rest = *end ? end + 1 : end;
    return true;
}

static bool span_is(struct span s, const char *text)
{
    return strlen(text) == s.len && memcmp(s.at, text, s.len) == 0;
}

/* 4294967295 is no id: the kernel uses it for "leave as it is". */
static bool span_to_id(struct span s, uint32_t *out)
{
    uint64_t n = 0;

    if (s.len == 0 || s.len > 10)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(s.at[i] - '0');
    }
    if (n >= UINT32_MAX)
        return false;
    *out = (uint32_t)n;
    return true;
}

/* A name is a byte shorter than its room: a longer name that was cut can then match none. '+' and
 * '-' start NIS lines, '#' is a comment by custom. */
static bool is_name(struct span s)
{
    return s.len > 0 && s.len < AGENT_NAME_SIZE - 1 && !strchr("+-#", s.at[0]);
}

static int copy_span(struct span s, const char *fallback, char *out, size_t size)
{
    if (s.len == 0)
        s = (struct span){fallback, strlen(fallback)};
    if (s.len >= size)
        return -EMSGSIZE;
    memcpy(out, s.at, s.len);
    out[s.len] = '\0';
    return 0;
}

static int read_passwd_line(const struct span f[static PASSWD_FIELDS], struct user *u)
{
    int r = copy_span(f[0], "", u->name, sizeof(u->name));

    if (r == 0)
        r = copy_span(f[5], "/", u->home, sizeof(u->home));
    if (r == 0)
        r = copy_span(f[6], "/bin/sh", u->shell, sizeof(u->shell));
    return r;
}

static bool is_member(struct span members, const char *name)
{
    size_t len = strlen(name);

    while (members.len > 0) {
        const char *comma = memchr(members.at, ',', members.len);
        size_t n = comma ? (size_t)(comma - members.at) : members.len;

        if (n == len && memcmp(members.at, name, len) == 0)
            return true;
        members.at += comma ? n + 1 : n;
        members.len -= comma ? n + 1 : n;
    }
    return false;
}

static bool has_group(const struct user *u, uint32_t gid)
{
    for (size_t i = 0; i < u->group_count; i++)
        if (u->groups[i] == gid)
            return true;
    return false;
}

static void read_groups(const char *text, struct user *u)
{
    struct span line, f[GROUP_FIELDS];
    uint32_t gid;

    u->groups[u->group_count++] = u->gid;
    while (u->group_count < USER_GROUPS_MAX && next_line(&text, &line)) {
        if (!split_line(line, f, GROUP_FIELDS) || !is_name(f[0]) || !span_to_id(f[2], &gid))
            continue;
        if (is_member(f[3], u->name) && !has_group(u, gid))
            u->groups[u->group_count++] = gid;
    }
}

/* number: NULL, or the user's instead of its name. */
static int find_line(const char *passwd, const char *group, const char *name,
                     const uint32_t *number, struct user *out)
{
    struct span line, f[PASSWD_FIELDS];
    struct user u = {0};
    int r;

    while (next_line(&passwd, &line)) {
        if (!split_line(line, f, PASSWD_FIELDS) || !is_name(f[0]) || !span_to_id(f[2], &u.uid) ||
            !span_to_id(f[3], &u.gid) || (number ? u.uid != *number : !span_is(f[0], name)))
            continue;
        r = read_passwd_line(f, &u);
        if (r < 0)
            return r;
        read_groups(group ? group : "", &u);
        *out = u;
        return 0;
    }
    return -ENOENT;
}

int user_find_in(const char *passwd, const char *group, const char *name, struct user *out)
{
    int r = find_line(passwd, group, name, NULL, out);
    uint32_t number;

    if (r == -ENOENT && span_to_id((struct span){name, strlen(name)}, &number))
        r = find_line(passwd, group, name, &number, out);
    return r;
}

/* The tenant may have put a FIFO or a device in the file's place: neither may make us wait. A NUL
 * would hide the rest from the parser, so such a file is refused. */
static int read_file(const char *path, struct buf *out)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    for (;;) {
        ssize_t got;
        int r = buf_reserve(out, 4096);

        if (r < 0)
            return r;
        got = io_read_some(fd, out->data + out->len, 4096);
        if (got < 0)
            return (int)got;
        if (got == 0)
            break;
        buf_commit(out, (size_t)got);
    }
    return memchr(out->data, '\0', out->len) ? -EINVAL : 0;
}

static int find(const char *name, struct user *out)
{
    CLEANUP_BUF struct buf passwd, group;
    int r;

    buf_init(&passwd, USER_FILE_MAX);
    buf_init(&group, USER_FILE_MAX);
    r = read_file(PASSWD_FILE, &passwd);
    if (r < 0)
        return r;
    /* Without a readable group file a user has no further groups: no reason to refuse it. */
    if (read_file(GROUP_FILE, &group) < 0)
        buf_clear(&group);
    return user_find_in(passwd.len ? passwd.data : "", group.len ? group.data : NULL, name, out);
}

enum err_code user_find(const char *name, struct user *out, struct err *e)
{
    int r = find(name, out);

    if (r == 0)
        return ERR_OK;
    if (r == -ENOENT)
        return err_set(e, ERR_UNAUTHENTICATED, "invalid username: '%s'", name);
    return err_set_sys(e, ERR_INTERNAL, r, "looking up user '%s' in " PASSWD_FILE, name);
}

/* The user name of a Basic header into out. False when there is none, or none that could be a name:
 * such a header counts as absent, as with upstream. The password proves nothing here. */
static bool basic_name(const char *header, char out[static AGENT_NAME_SIZE])
{
    char text[BASIC_MAX / 4 * 3 + 3];
    const char *colon;
    ssize_t len;

    if (!header || strncasecmp(header, "Basic ", 6) != 0 || strlen(header + 6) > BASIC_MAX)
        return false;
    len = base64_decode(header + 6, strlen(header + 6), text);
    if (len < 0)
        return false;
    colon = memchr(text, ':', (size_t)len);
    if (!colon || memchr(text, '\0', (size_t)(colon - text)))
        return false;
    /* A longer name is cut, and so stays unknown: AGENT_NAME_SIZE - 1 bytes are no user's name. */
    snprintf(out, AGENT_NAME_SIZE, "%.*s", (int)(colon - text), text);
    return true;
}

enum err_code user_of_request(const struct http_exchange *x, const struct agent *a,
                              struct user *out, struct err *e)
{
    char name[AGENT_NAME_SIZE];

    enum err_code rc;

    if (!basic_name(http_head_get(http_exchange_head(x), "Authorization"), name))
        snprintf(name, sizeof(name), "%s", a->default_user);
    if (!name[0])
        return err_set(e, ERR_UNAUTHENTICATED, "no user specified");
    rc = user_find(name, out, e);
    if (rc == ERR_OK)
        out->own_rights = user_own_rights(x);
    return rc;
}

bool user_own_rights(const struct http_exchange *x)
{
    const char *access = http_head_get(http_exchange_head(x), AGENT_ACCESS_HEADER);

    return access && strcmp(access, "user") == 0;
}

void user_names_init(struct user_names *n)
{
    *n = (struct user_names){0};
    buf_init(&n->passwd, USER_FILE_MAX);
    buf_init(&n->group, USER_FILE_MAX);
}

void user_names_free(struct user_names *n)
{
    buf_free(&n->passwd);
    buf_free(&n->group);
}

static void load_names(struct user_names *n)
{
    if (n->loaded)
        return;
    n->loaded = true;
    if (read_file(PASSWD_FILE, &n->passwd) < 0)
        buf_clear(&n->passwd);
    if (read_file(GROUP_FILE, &n->group) < 0)
        buf_clear(&n->group);
}

/* The first line whose third field is id names it, as getpwuid(3) has it. */
static void name_of_id(const char *text, size_t fields, uint32_t id,
                       char out[static AGENT_NAME_SIZE])
{
    struct span line, f[PASSWD_FIELDS];
    uint32_t found;

    while (next_line(&text, &line)) {
        if (!split_line(line, f, fields) || !is_name(f[0]) || !span_to_id(f[2], &found))
            continue;
        if (found == id && copy_span(f[0], "", out, AGENT_NAME_SIZE) == 0)
            return;
    }
    snprintf(out, AGENT_NAME_SIZE, "%u", id);
}

static const char *remembered(struct user_name_memo *memo, size_t count, const struct buf *file,
                              size_t fields, uint32_t id)
{
    struct user_name_memo *m = &memo[id % count];

    if (m->valid && m->id == id)
        return m->name;
    name_of_id(file->len ? file->data : "", fields, id, m->name);
    m->id = id;
    m->valid = true;
    return m->name;
}

const char *user_names_uid(struct user_names *n, uint32_t uid)
{
    load_names(n);
    return remembered(n->uids, ARRAY_SIZE(n->uids), &n->passwd, PASSWD_FIELDS, uid);
}

const char *user_names_gid(struct user_names *n, uint32_t gid)
{
    load_names(n);
    return remembered(n->gids, ARRAY_SIZE(n->gids), &n->group, GROUP_FIELDS, gid);
}
