/* Translates git's output for Daytona's clients: porcelain status, branches, history, and refusals
 * by their words. Pure: git.c runs git in the sandbox and hands its output here. The output is a
 * tenant's and may be anything: each reader takes whole entries only and reports -EBADMSG for what
 * is not git's form. Refusals are known by git's English texts, for which git.c sets LC_ALL=C. */

#include "toolbox/git.h"

#include "base/buf.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

/* -- parts ------------------------------------------------------------------------------------- */

struct span {
    const char *at;
    size_t len;
};

/* The next piece of *text up to mark, which goes with it. False: there is none that is whole. */
static bool next(struct span *text, char mark, struct span *out)
{
    const char *end = text->len ? memchr(text->at, mark, text->len) : NULL;

    if (!end)
        return false;
    *out = (struct span){text->at, (size_t)(end - text->at)};
    text->len -= out->len + 1;
    text->at = end + 1;
    return true;
}

/* Skips n words, each with its blank. */
static bool skip_words(struct span *s, size_t n)
{
    struct span word;

    for (size_t i = 0; i < n; i++)
        if (!next(s, ' ', &word))
            return false;
    return true;
}

static bool begins(struct span s, const char *with)
{
    return s.len >= strlen(with) && memcmp(s.at, with, strlen(with)) == 0;
}

static struct span behind(struct span s, const char *with)
{
    return (struct span){s.at + strlen(with), s.len - strlen(with)};
}

static int put(struct buf *b, const char *before, struct span text)
{
    int rc = buf_append_str(b, before);

    return rc == 0 ? json_append_text(b, text.at, text.len) : rc;
}

static int put_str(struct buf *b, const char *before, const char *text)
{
    return put(b, before, (struct span){text, strlen(text)});
}

/* -- status ------------------------------------------------------------------------------------ */

static const char *state_of(char c)
{
    switch (c) {
    case '?': return "Untracked";
    case 'M':
    case 'T': return "Modified";
    case 'A': return "Added";
    case 'D': return "Deleted";
    case 'R': return "Renamed";
    case 'C': return "Copied";
    case 'U': return "Updated but unmerged";
    default: return "Unmodified";
    }
}

struct status {
    struct span branch, upstream;
    long ahead, behind;
    size_t count;
};

static long number(struct span s)
{
    long n = 0;

    for (size_t i = 0; i < s.len && s.at[i] >= '0' && s.at[i] <= '9' && n < 100000000; i++)
        n = n * 10 + (s.at[i] - '0');
    return n;
}

static void read_header(struct status *st, struct span line)
{
    struct span ahead;

    if (begins(line, "# branch.head ")) {
        st->branch = behind(line, "# branch.head ");
    } else if (begins(line, "# branch.upstream ")) {
        st->upstream = behind(line, "# branch.upstream ");
    } else if (begins(line, "# branch.ab +")) {
        line = behind(line, "# branch.ab +");
        if (next(&line, ' ', &ahead) && begins(line, "-")) {
            st->ahead = number(ahead);
            st->behind = number(behind(line, "-"));
        }
    }
}

static int put_file(struct buf *b, struct status *st, char staging, char worktree, struct span name,
                    struct span extra)
{
    int rc = put(b, st->count++ ? ",{\"name\":" : "{\"name\":", name);

    if (rc == 0)
        rc = put_str(b, ",\"staging\":", state_of(staging));
    if (rc == 0)
        rc = put_str(b, ",\"worktree\":", state_of(worktree));
    if (rc == 0)
        rc = put(b, ",\"extra\":", extra);
    return rc == 0 ? buf_append_str(b, "}") : rc;
}

/* Reads an entry; a renamed one has its old name as an entry of its own. -EBADMSG: it is cut or not
 * git's. */
static int read_entry(struct buf *b, struct status *st, struct span line, struct span *rest)
{
    static const struct {
        char kind;
        size_t words; /* before the name */
    } kinds[] = {{'1', 8}, {'2', 9}, {'u', 10}};
    struct span extra = {"", 0};

    if (begins(line, "? "))
        return put_file(b, st, '?', '?', behind(line, "? "), extra);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        const char *xy = line.at + 2;

        if (line.len < 4 || line.at[0] != kinds[i].kind || line.at[1] != ' ')
            continue;
        if (!skip_words(&line, kinds[i].words))
            return -EBADMSG;
        if (kinds[i].kind == '2' && !next(rest, '\0', &extra))
            return -EBADMSG;
        return put_file(b, st, xy[0], xy[1], line, extra);
    }
    return line.len && line.at[0] == '!' ? 0 : -EBADMSG;
}

static int put_branch(struct buf *b, const struct status *st)
{
    bool detached = st->branch.len == strlen("(detached)") && begins(st->branch, "(detached)");
    struct span head = {"HEAD", strlen("HEAD")};
    int rc = put(b, "],\"currentBranch\":", detached ? head : st->branch);

    if (rc == 0 && st->upstream.len)
        rc = put(b, ",\"upstream\":", st->upstream);
    if (rc == 0)
        rc = buf_printf(b, ",\"ahead\":%ld,\"behind\":%ld,\"branchPublished\":%s,\"detached\":%s}",
                        st->ahead, st->behind, st->upstream.len ? "true" : "false",
                        detached ? "true" : "false");
    return rc;
}

int git_read_status(const char *text, size_t len, struct buf *b)
{
    struct status st = {.branch = {"", 0}};
    struct span rest = {text, len}, line;
    int rc = buf_append_str(b, "{\"fileStatus\":[");

    while (rc == 0 && next(&rest, '\0', &line)) {
        if (begins(line, "# "))
            read_header(&st, line);
        else
            rc = read_entry(b, &st, line, &rest);
    }
    return rc == 0 ? put_branch(b, &st) : rc;
}

/* -- branches and commits ---------------------------------------------------------------------- */

int git_read_branches(const char *text, size_t len, struct buf *b)
{
    struct span rest = {text, len}, current = {"", 0}, line;
    size_t n = 0;
    int rc;

    if (!next(&rest, '\n', &current))
        return -EBADMSG;
    rc = buf_append_str(b, "{\"branches\":[");
    while (rc == 0 && next(&rest, '\n', &line))
        rc = put(b, n++ ? "," : "", line);
    if (rc == 0)
        rc = put(b, "],\"current\":", current);
    return rc == 0 ? buf_append_str(b, "}") : rc;
}

int git_read_history(const char *text, size_t len, struct buf *b)
{
    static const char *const names[] = {
        "{\"hash\":", ",\"author\":", ",\"email\":", ",\"timestamp\":", ",\"message\":"};
    struct span rest = {text, len}, fields[ARRAY_SIZE(names)];
    int rc = buf_append_str(b, "[");

    for (size_t n = 0; rc == 0; n++) {
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            if (!next(&rest, '\0', &fields[i]))
                return buf_append_str(b, "]");
        rc = buf_append_str(b, n ? "," : "");
        for (size_t i = 0; i < ARRAY_SIZE(names) && rc == 0; i++)
            rc = put(b, names[i], fields[i]);
        if (rc == 0)
            rc = buf_append_str(b, "}");
    }
    return rc;
}

/* -- remotes and settings ---------------------------------------------------------------------- */

/* "remote.NAME.url", a line feed and the address. -EBADMSG: it is not. A key without a value has
 * neither. */
static int read_remote(struct span entry, struct span *name, struct span *url)
{
    const size_t before = strlen("remote."), after = strlen(".url");
    struct span key;

    if (!next(&entry, '\n', &key))
        return -ENOENT;
    if (!begins(key, "remote.") || key.len <= before + after ||
        memcmp(key.at + key.len - after, ".url", after) != 0)
        return -EBADMSG;
    *name = (struct span){key.at + before, key.len - before - after};
    *url = entry;
    return 0;
}

int git_read_remotes(const char *text, size_t len, struct buf *b)
{
    struct span rest = {text, len}, entry, name, url, last = {NULL, 0};
    int rc = buf_append_str(b, "{\"remotes\":["), one;

    while (rc == 0 && next(&rest, '\0', &entry)) {
        one = read_remote(entry, &name, &url);
        if (one == -EBADMSG)
            return one;
        if (one < 0 || (last.at && last.len == name.len && !memcmp(last.at, name.at, name.len)))
            continue;
        rc = put(b, last.at ? ",{\"name\":" : "{\"name\":", name);
        if (rc == 0)
            rc = put(b, ",\"url\":", url);
        if (rc == 0)
            rc = buf_append_str(b, "}");
        last = name;
    }
    return rc == 0 ? buf_append_str(b, "]}") : rc;
}

int git_read_value(const char *text, size_t len, struct buf *b)
{
    struct span rest = {text, len}, value;
    int rc;

    if (len == 0)
        return buf_append_str(b, "{}"); /* Daytona's file has no null there */
    if (!next(&rest, '\0', &value))
        return -EBADMSG;
    rc = put(b, "{\"value\":", value);
    return rc == 0 ? buf_append_str(b, "}") : rc;
}

/* -- refusals ---------------------------------------------------------------------------------- */

/* In this order: git's later lines repeat the kind of failure in general words. A remote that is
 * not reached is the request's own: 400, and no failure of this server. */
static const struct {
    const char *words;
    struct git_refusal refusal;
} refusals[] = {
    {"Authentication failed", {401, "GIT_AUTH_FAILED"}},
    {"could not read Username", {401, "GIT_AUTH_FAILED"}},
    {"could not read Password", {401, "GIT_AUTH_FAILED"}},
    {"Permission denied (publickey", {401, "GIT_AUTH_FAILED"}},
    {"The requested URL returned error: 403", {403, NULL}},
    {"The requested URL returned error: 404", {404, "GIT_REPO_NOT_FOUND"}},
    {"not a git repository", {404, "GIT_REPO_NOT_FOUND"}},
    {"does not appear to be a git repository", {404, "GIT_REPO_NOT_FOUND"}},
    {"epository not found", {404, "GIT_REPO_NOT_FOUND"}},
    {"fatal: repository '", {404, "GIT_REPO_NOT_FOUND"}},
    {"is not an empty directory", {409, "CONFLICT"}},
    {"fatal: a branch named '", {409, "GIT_BRANCH_EXISTS"}},
    {"fatal: Remote branch ", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"fatal: couldn't find remote ref", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"did not match any file(s) known to git", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"fatal: invalid reference: ", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"fatal: Failed to resolve '", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"fatal: could not resolve ", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"does not match any", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"error: branch '", {404, "GIT_BRANCH_NOT_FOUND"}},
    {"is not currently on a branch", {404, "GIT_BRANCH_NOT_FOUND"}},
    {" already exists.", {409, "CONFLICT"}},
    {"/etc/gitconfig: Permission denied", {403, NULL}},
    {"Could not reset index file", {409, "GIT_DIRTY_WORKTREE"}},
    {"would be overwritten by", {409, "GIT_DIRTY_WORKTREE"}},
    {"Your local changes", {409, "GIT_DIRTY_WORKTREE"}},
    {"Not possible to fast-forward", {409, "GIT_MERGE_CONFLICT"}},
    {"unmerged files", {409, "GIT_MERGE_CONFLICT"}},
    {"[remote rejected]", {409, "GIT_REMOTE_REJECTED"}},
    {"[rejected]", {409, "GIT_PUSH_REJECTED"}},
    {"nothing to commit", {409, "CONFLICT"}},
    {"nothing added to commit", {409, "CONFLICT"}},
    {"Could not resolve host", {400, "GIT_TRANSPORT_FAILED"}},
    {"unable to access '", {400, "GIT_TRANSPORT_FAILED"}},
    {"Could not read from remote repository", {400, "GIT_TRANSPORT_FAILED"}},
};

struct git_refusal git_read_refusal(const char *text, bool has_files)
{
    if (has_files && strstr(text, "did not match any file"))
        return (struct git_refusal){400, NULL};
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
        if (strstr(text, refusals[i].words))
            return refusals[i].refusal;
    return (struct git_refusal){400, NULL};
}
