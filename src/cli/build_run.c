/* In order: a command in the sandbox, whose output's end is kept; each kind of step; the start
 * file. Output of the sandbox is bounded, and shown without control characters. */
#include "cli/build_run.h"

#include "base/clock.h"
#include "base/io.h"
#include "cli/session.h"
#include "cli/tar.h"
#include "cli/terminal.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#define START_FILE   "/etc/cay/start.json"
#define PROFILE_FILE "/etc/profile.d/cay-path.sh"
#define LIVE_COLUMNS 90

/* Variables that an ENV may use before a build file sets them: cay-init gives them to every
 * process. */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* $o: $3, an owner or nothing, with a group: of a name its own, of a number the same. */
#define OWNER \
    "set -e; o=$3; case $o in ''|*:*) ;; *[!0-9]*) o=$o:$(id -g -- \"$o\");; *) o=$o:$o;; esac; "

/* Makes the folder dir with what leads to it; new folders are the owner's. $n: "": it was there. */
#define MAKE(dir)                                                                               \
    "n=; p=" dir "; while [ ! -e \"$p\" ]; do n=$p; p=$(dirname -- \"$p\"); done; mkdir -p -- " \
    "\"" dir "\"; [ -z \"$n\" ] || [ -z \"$o\" ] || chown -R \"$o\" \"$n\"; "

/* $1 target, $2 mode, $3 owner or nothing, $4 the source's name. By a temporary name: programs of
 * the old file go on. The mode comes last: a change of the owner takes set-id bits away. */
static const char copy_file_script[] = OWNER
    "case $1 in */) t=$1$4;; *) t=$1; [ ! -d \"$t\" ] || t=$t/$4;; esac; "
    "d=$(dirname -- \"$t\"); " MAKE(
        "$d") "cat > \"$t.cay-new\"; "
              "[ -z \"$o\" ] || chown \"$o\" \"$t.cay-new\"; chmod \"$2\" \"$t.cay-new\"; "
              "mv -f -- \"$t.cay-new\" \"$t\"";

/* The same of a folder. Folders that are there keep their mode and owner; the target that is not
 * gets both. */
static const char copy_folder_script[] = OWNER MAKE(
    "$1") "if [ -z \"$2$o\" ]; then "
          "exec tar --no-same-owner --no-overwrite-dir -xpf - -C \"$1\"; fi; "
          "d=$(mktemp -d /tmp/cay-copy.XXXXXX); trap 'rm -rf \"$d\"' EXIT; "
          "tar --no-same-owner --no-overwrite-dir -xpf - -C \"$d\"; "
          "[ -z \"$o\" ] || chown -hR \"$o\" \"$d\"; [ -z \"$2\" ] || chmod -R \"$2\" \"$d\"; "
          "tar -C \"$d\" -cf - . | tar --no-overwrite-dir -xpf - -C \"$1\"; "
          "[ -z \"$n\" ] || [ -z \"$2\" ] || chmod \"$2\" \"$1\"";

/* -- a command in the sandbox ------------------------------------------------------------------ */

/* The newest line that has something in it, in one line of the terminal. */
static void show_live(const struct build_run *r)
{
    const char *end = r->tail.data + r->tail.len, *begin;
    char line[LIVE_COLUMNS + 1];

    while (end > r->tail.data && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    for (begin = end; begin > r->tail.data && begin[-1] != '\n' && begin[-1] != '\r';)
        begin--;
    snprintf(line, sizeof(line), "%.*s", (int)MIN(end - begin, (ptrdiff_t)LIVE_COLUMNS), begin);
    terminal_control(stderr, "\r\033[K");
    terminal_put(stderr, "      ", line);
}

static void take_output(void *arg, const char *bytes, size_t n)
{
    struct build_run *r = arg;

    if (n > BUILD_TAIL_MAX) {
        bytes += n - BUILD_TAIL_MAX;
        n = BUILD_TAIL_MAX;
    }
    if (r->tail.len + n > BUILD_TAIL_MAX)
        buf_consume(&r->tail, r->tail.len + n - BUILD_TAIL_MAX);
    (void)!buf_append(&r->tail, bytes, n);
    if (r->live && r->tail.len > 0)
        show_live(r);
}

struct command {
    const char *user, *cwd;
    const json_t *env; /* NULL: none */
    json_t *args;      /* of cmd; taken */
    const char *cmd;
    int in_fd; /* -1: none */
};

static enum err_code run_command(struct build_run *r, const struct command *c, struct err *e)
{
    struct api_sandbox as = *r->sandbox;
    json_t *process = json_pack("{s:s, s:o, s:s}", "cmd", c->cmd, "args", c->args, "cwd", c->cwd);
    struct session_spec spec = {.sandbox = &as,
                                .process = process,
                                .in_fd = c->in_fd,
                                .out_fd = -1,
                                .err_fd = -1,
                                .output = take_output,
                                .output_arg = r};
    uint64_t now = clock_mono_ms();

    snprintf(as.user, sizeof(as.user), "%s", c->user);
    buf_clear(&r->tail);
    if (!process)
        return err_set(e, ERR_INVALID, "the command is not valid UTF-8");
    if (c->env)
        json_object_set(process, "envs", (json_t *)(uintptr_t)c->env);
    spec.timeout_ms = r->until_ms > now ? r->until_ms - now : 1;
    r->status = session_run(r->api, &spec, e);
    json_decref(process);
    if (r->live)
        terminal_control(stderr, "\r\033[K");
    if (e->code == ERR_TIMEOUT)
        err_hint(e, "--ttl sets how long all the steps together may take.");
    if (r->status != 0 && e->code == ERR_OK)
        err_set(e, ERR_INTERNAL, "it ended with status %d", r->status);
    return e->code;
}

/* script for /bin/sh as root, with up to four arguments. */
static enum err_code run_script(struct build_run *r, const char *script, const char *const args[4],
                                int in_fd, struct err *e)
{
    const struct command c = {
        .user = "root",
        .cwd = "/",
        .cmd = "/bin/sh",
        .args = json_pack("[s, s, s, s, s, s, s]", "-c", script, "sh", args[0], args[1], args[2],
                          args[3]),
        .in_fd = in_fd,
    };

    if (!c.args)
        return err_set(e, ERR_INVALID, "a name is not valid UTF-8");
    return run_command(r, &c, e);
}

/* -- the steps --------------------------------------------------------------------------------- */

static enum err_code step_run(struct build_run *r, const struct build_file_step *s, struct err *e)
{
    struct command c = {.user = r->user, .cwd = r->cwd, .env = r->env, .in_fd = -1};

    if (s->words) {
        c.cmd = json_string_value(json_array_get(s->words, 0));
        c.args = json_deep_copy(s->words);
        json_array_remove(c.args, 0);
    } else {
        c.cmd = "/bin/sh";
        c.args = json_pack("[s, s]", "-c", s->text);
    }
    return run_command(r, &c, e);
}

static enum err_code copy_folder(struct build_run *r, int fd, const char *const args[4],
                                 struct err *e)
{
    CLEANUP_BUF struct buf messages;
    struct err ours = {.code = ERR_OK};
    struct tar tar;

    buf_init(&messages, BUILD_TAIL_MAX);
    if (tar_pack_dir(&tar, fd, e) != ERR_OK)
        return e->code;
    run_script(r, copy_folder_script, args, tar.fd, e);
    if (tar_end(&tar, &messages, &ours) != ERR_OK && e->code == ERR_OK) {
        take_output(r, messages.data, messages.len);
        *e = ours;
    }
    return e->code;
}

static enum err_code copy_one(struct build_run *r, const struct build_file_step *s,
                              const char *source, const char *target, struct err *e)
{
    char mode[8], copy[PATH_MAX];
    struct stat st;
    CLEANUP_CLOSE int fd = build_context_source(r->context, source, &st, e);

    if (fd < 0)
        return e->code;
    snprintf(copy, sizeof(copy), "%s", source);
    snprintf(mode, sizeof(mode), "%s", s->mode);
    if (S_ISREG(st.st_mode) && !mode[0])
        snprintf(mode, sizeof(mode), "%04o", st.st_mode & 0777);
    const char *const args[] = {target, mode, s->owner ? s->owner : "", basename(copy)};

    return S_ISDIR(st.st_mode) ? copy_folder(r, fd, args, e)
                               : run_script(r, copy_file_script, args, fd, e);
}

static json_t *variables(const struct build_run *r)
{
    json_t *all = json_pack("{s:s}", "PATH", DEFAULT_PATH);

    json_object_update(all, r->env);
    return all;
}

/* A path that text names, with variables, from where the steps are. */
static enum err_code path_of(const struct build_run *r, const char *text, struct buf *out,
                             struct err *e)
{
    json_t *env = variables(r);
    CLEANUP_BUF struct buf plain;
    enum err_code code;

    buf_init(&plain, PATH_MAX - 1);
    code = build_file_expand(text, env, &plain, e);
    json_decref(env);
    if (code != ERR_OK)
        return code;
    if (plain.len == 0)
        return err_set(e, ERR_INVALID, "the path %.60s is empty", text);
    if ((plain.data[0] != '/' &&
         buf_printf(out, "%s/", strcmp(r->cwd, "/") == 0 ? "" : r->cwd) < 0) ||
        buf_append(out, plain.data, plain.len) < 0 || buf_append(out, "", 1) < 0)
        return err_set(e, ERR_TOO_LARGE, "the path %.60s is too long", text);
    return ERR_OK;
}

static enum err_code step_copy(struct build_run *r, const struct build_file_step *s, struct err *e)
{
    size_t n = json_array_size(s->words) - 1;
    const char *to = json_string_value(json_array_get(s->words, n));
    CLEANUP_BUF struct buf target;

    buf_init(&target, PATH_MAX);
    if (path_of(r, strcmp(to, ".") == 0 ? "./" : to, &target, e) != ERR_OK)
        return e->code;
    if (n > 1 && target.data[strlen(target.data) - 1] != '/')
        return err_set(e, ERR_INVALID, "with several sources the target has to end with /");
    for (size_t i = 0; i < n; i++)
        if (copy_one(r, s, json_string_value(json_array_get(s->words, i)), target.data, e) !=
            ERR_OK)
            return e->code;
    return ERR_OK;
}

static enum err_code step_env(struct build_run *r, const struct build_file_step *s, struct err *e)
{
    json_t *known = variables(r);
    enum err_code code = build_file_env(s->text, known, r->env, e);

    json_decref(known);
    return code;
}

static enum err_code step_workdir(struct build_run *r, const struct build_file_step *s,
                                  struct err *e)
{
    CLEANUP_BUF struct buf path;

    buf_init(&path, sizeof(r->cwd));
    if (path_of(r, s->text, &path, e) != ERR_OK)
        return e->code;
    snprintf(r->cwd, sizeof(r->cwd), "%s", path.data);
    return run_script(r, "mkdir -p -- \"$1\"", (const char *const[]){r->cwd, "", "", ""}, -1, e);
}

static enum err_code step_user(struct build_run *r, const struct build_file_step *s, struct err *e)
{
    if (strlen(s->text) >= sizeof(r->user))
        return err_set(e, ERR_INVALID, "the user's name is too long");
    snprintf(r->user, sizeof(r->user), "%s", s->text);
    return run_script(r, "id -u -- \"$1\"", (const char *const[]){r->user, "", "", ""}, -1, e);
}

static enum err_code step_cmd(struct build_run *r, const struct build_file_step *s, struct err *e)
{
    free(r->cmd);
    r->cmd = s->words ? build_file_quote("exec", s->words) : strdup(s->text);
    return r->cmd ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code build_run_step(struct build_run *r, const struct build_file_step *s, struct err *e)
{
    r->status = 0;
    buf_clear(&r->tail);
    err_set(e, ERR_OK, "%s", "");
    switch (s->op) {
    case BUILD_RUN: return step_run(r, s, e);
    case BUILD_COPY: return step_copy(r, s, e);
    case BUILD_ENV: return step_env(r, s, e);
    case BUILD_WORKDIR: return step_workdir(r, s, e);
    case BUILD_USER: return step_user(r, s, e);
    case BUILD_CMD: return step_cmd(r, s, e);
    case BUILD_EXPOSE: r->port = (int)strtol(s->text, NULL, 10); return ERR_OK;
    case BUILD_FROM:
    case BUILD_LABEL:
    case BUILD_ENTRYPOINT: break;
    }
    return ERR_OK;
}

/* -- the start file ---------------------------------------------------------------------------- */

static void copy_text(const json_t *file, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(file, key));

    if (text && text[0] && strlen(text) < size)
        snprintf(out, size, "%s", text);
}

/* The settings of the template that the build begins with stay in force, as in Docker. The file is
 * the sandbox's: unknown fields are left out. */
static void take_start_file(struct build_run *r, const json_t *file)
{
    const char *name, *cmd = json_string_value(json_object_get(file, "cmd"));
    json_t *value;

    json_object_foreach (json_object_get(file, "env"), name, value)
        if (json_is_string(value))
            json_object_set(r->env, name, value);
    copy_text(file, "user", r->user, sizeof(r->user));
    copy_text(file, "cwd", r->cwd, sizeof(r->cwd));
    r->port = (int)json_integer_value(json_object_get(file, "port"));
    if (cmd)
        r->cmd = strdup(cmd);
}

enum err_code build_run_begin(struct build_run *r, struct err *e)
{
    bool live = r->live;
    json_t *file;

    buf_init(&r->tail, BUILD_TAIL_MAX);
    r->env = json_object();
    snprintf(r->user, sizeof(r->user), "root");
    snprintf(r->cwd, sizeof(r->cwd), "/");
    r->live = false;
    run_script(r, "[ ! -e \"$1\" ] || exec head -c \"$2\" \"$1\"",
               (const char *const[]){START_FILE, "16384", "", ""}, -1, e);
    r->live = live;
    if (e->code != ERR_OK)
        return e->code;
    file = r->tail.len > 0 ? json_loadb(r->tail.data, r->tail.len, 0, NULL) : NULL;
    take_start_file(r, file);
    json_decref(file);
    return ERR_OK;
}

void build_run_free(struct build_run *r)
{
    json_decref(r->env);
    free(r->cmd);
    buf_free(&r->tail);
}

/* text as a file of root's in the sandbox. */
static enum err_code write_text(struct build_run *r, const char *path, const char *text,
                                struct err *e)
{
    CLEANUP_CLOSE int fd = memfd_create("cay-text", MFD_CLOEXEC);

    if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_set_sys(e, ERR_EXHAUSTED, errno, "cannot write %s", path);
    return run_script(r, copy_file_script, (const char *const[]){path, "0644", "", ""}, fd, e);
}

/* Debian's /etc/profile sets PATH anew for login shells, and then reads this: as such a shell E2B's
 * clients run commands. */
static enum err_code write_profile(struct build_run *r, struct err *e)
{
    json_t *words = json_pack("[s++]", "PATH=", json_string_value(json_object_get(r->env, "PATH")),
                              "");
    CLEANUP_FREE char *quoted = words ? build_file_quote("export", words) : NULL;
    CLEANUP_BUF struct buf text;

    json_decref(words);
    buf_init(&text, 2u * BUILD_FILE_MAX_BYTES);
    if (!quoted || buf_printf(&text, "%s\n", quoted) < 0 || buf_append(&text, "", 1) < 0)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    return write_text(r, PROFILE_FILE, text.data, e);
}

enum err_code build_run_finish(struct build_run *r, struct err *e)
{
    json_t *file = json_object();
    CLEANUP_FREE char *text = NULL;

    err_set(e, ERR_OK, "%s", "");
    if (json_object_size(r->env) > 0)
        json_object_set(file, "env", r->env);
    if (r->cmd) {
        json_object_set_new(file, "cmd", json_string(r->cmd));
        json_object_set_new(file, "user", json_string(r->user));
        json_object_set_new(file, "cwd", json_string(r->cwd));
        if (r->port > 0)
            json_object_set_new(file, "port", json_integer(r->port));
    }
    if (json_object_size(file) > 0)
        text = json_dumps(file, JSON_INDENT(1));
    json_decref(file);
    if (!text)
        return ERR_OK;
    if (strlen(text) >= BUILD_TAIL_MAX)
        return err_set(e, ERR_TOO_LARGE, "ENV and CMD are over %u KiB", BUILD_TAIL_MAX >> 10);
    if (json_object_get(r->env, "PATH") && write_profile(r, e) != ERR_OK)
        return e->code;
    return write_text(r, START_FILE, text, e);
}
