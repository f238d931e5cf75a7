/* cp: single files as HTTP bodies, folders as tar streams through a process in the sandbox. */
#include "base/io.h"
#include "cli/commands.h"
#include "cli/session.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct place {
    char sandbox[64]; /* empty: this machine */
    char path[4096];
};

struct copy {
    const struct cli *c;
    struct api *api;
    struct api_sandbox sandbox;
    struct progress bar;
    struct buf answer; /* of an error */
    CURL *curl;
    int in_fd, out_fd; /* what is sent; where the answer goes, or -1 */
    uint64_t done_bytes;
    struct err *e;
};

/* ID:PATH is a sandbox when ID looks like one; ./a:b and /a:b are files. */
static int parse_place(const char *text, struct place *out)
{
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;

    memset(out, 0, sizeof(*out));
    if (colon && len > 0 && len < sizeof(out->sandbox) &&
        strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == len) {
        memcpy(out->sandbox, text, len);
        text = colon + 1;
    }
    if (strlen(text) >= sizeof(out->path))
        return -ENAMETOOLONG;
    snprintf(out->path, sizeof(out->path), "%s", text);
    return 0;
}

static void base_name(const char *path, char *out, size_t size)
{
    char copy[4096];

    snprintf(copy, sizeof(copy), "%s", path);
    snprintf(out, size, "%s", basename(copy));
}

/* -- the sandbox's side ------------------------------------------------------------------------ */

struct remote {
    bool exists, directory;
    uint64_t size;
    unsigned mode;
};

static enum err_code remote_stat(struct copy *k, const char *path, struct remote *out,
                                 struct err *e)
{
    json_t *body = json_pack("{s:s}", "path", path[0] ? path : "."), *answer = NULL, *entry;
    enum err_code code;

    memset(out, 0, sizeof(*out));
    if (!body)
        return err_set(e, ERR_INVALID, "the path is not valid UTF-8");
    code = api_agent_call(k->api, &k->sandbox, "filesystem.Filesystem/Stat", body, &answer, e);
    json_decref(body);
    if (code == ERR_NOT_FOUND)
        return ERR_OK;
    if (code != ERR_OK)
        return code;
    entry = json_object_get(answer, "entry");
    out->exists = true;
    out->directory = json_string_value(json_object_get(entry, "type")) &&
                     strcmp(json_string_value(json_object_get(entry, "type")),
                            "FILE_TYPE_DIRECTORY") == 0;
    if (json_is_string(json_object_get(entry, "size")))
        out->size = strtoull(json_string_value(json_object_get(entry, "size")), NULL, 10);
    out->mode = (unsigned)json_integer_value(json_object_get(entry, "mode")) & 0777;
    json_decref(answer);
    return ERR_OK;
}

/* Runs a program in the sandbox between two descriptors of ours; its errors go to standard error. */
static int remote_run(struct copy *k, json_t *args, const char *cmd, int in_fd, int out_fd,
                      void (*progress)(void *arg, uint64_t in, uint64_t out))
{
    json_t *process = json_pack("{s:s, s:o}", "cmd", cmd, "args", args);
    struct session_spec spec = {
        .sandbox = &k->sandbox,
        .process = process,
        .in_fd = in_fd,
        .out_fd = out_fd,
        .err_fd = STDERR_FILENO,
        .progress = progress,
        .progress_arg = k,
    };
    int status;

    if (!process) {
        err_set(k->e, ERR_INVALID, "the path is not valid UTF-8");
        return CLI_FAILED;
    }
    status = session_run(k->api, &spec, k->e);
    json_decref(process);
    if (status != 0 && k->e->code == ERR_OK)
        err_set(k->e, ERR_INTERNAL, "%s ended with status %d in the sandbox", cmd, status);
    return status;
}

static enum err_code files_path(struct copy *k, const char *path, char **out, struct err *e)
{
    char *escaped = curl_easy_escape(NULL, path, 0);
    char *user = curl_easy_escape(NULL, k->sandbox.user, 0);
    int n = -1;

    if (escaped && user)
        n = asprintf(out, "/files?path=%s%s%s", escaped, user[0] ? "&username=" : "", user);
    curl_free(escaped);
    curl_free(user);
    return n < 0 ? err_set(e, ERR_EXHAUSTED, "out of memory") : ERR_OK;
}

/* -- one file ---------------------------------------------------------------------------------- */

static size_t read_file(char *out, size_t size, size_t n, void *arg)
{
    struct copy *k = arg;
    ssize_t got = read(k->in_fd, out, size * n);

    if (got < 0)
        return CURL_READFUNC_ABORT;
    k->done_bytes += (uint64_t)got;
    progress_step(&k->bar, k->done_bytes);
    return (size_t)got;
}

static size_t write_file(char *data, size_t size, size_t n, void *arg)
{
    struct copy *k = arg;
    long status = 0;

    n *= size;
    curl_easy_getinfo(k->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400)
        return buf_append(&k->answer, data, n) == 0 ? n : 0;
    if (k->out_fd < 0)
        return n;
    if (io_write_full(k->out_fd, data, n) < 0)
        return 0;
    k->done_bytes += n;
    progress_step(&k->bar, k->done_bytes);
    return n;
}

static enum err_code transfer(struct copy *k, struct api_easy *x)
{
    long status = 0;
    CURLcode r;

    k->curl = x->curl;
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, write_file);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, k);
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_TIME, 120L);
    curl_easy_setopt(x->curl, CURLOPT_BUFFERSIZE, 262144L);
    r = api_easy_run(k->api, x);
    if (r == CURLE_WRITE_ERROR)
        return err_set_sys(k->e, err_code_from_errno(errno), errno, "cannot write here");
    if (r != CURLE_OK)
        return api_curl_error(k->api, x, r, k->e);
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400)
        return api_status_error(status, k->answer.data, k->e);
    progress_end(&k->bar, k->done_bytes);
    return ERR_OK;
}

/* New files in a sandbox have mode 0644: a program must stay one. */
static enum err_code keep_mode(struct copy *k, const char *path, unsigned mode)
{
    char text[8];
    json_t *args;

    if (!(mode & 0111))
        return ERR_OK;
    snprintf(text, sizeof(text), "%04o", mode & 0777);
    args = json_pack("[s, s, s]", text, "--", path);
    return remote_run(k, args, "chmod", -1, STDOUT_FILENO, NULL) == 0 ? ERR_OK : k->e->code;
}

static enum err_code upload_file(struct copy *k, const char *from, const struct stat *st,
                                 const char *to)
{
    CLEANUP_CLOSE int fd = open(from, O_RDONLY | O_CLOEXEC);
    CLEANUP_FREE char *path = NULL;
    struct api_easy x;
    enum err_code code;

    if (fd < 0)
        return err_set_sys(k->e, err_code_from_errno(errno), errno, "cannot open %s", from);
    if (files_path(k, to, &path, k->e) != ERR_OK ||
        api_agent_easy(k->api, &k->sandbox, path, "application/octet-stream", &x, k->e) != ERR_OK)
        return k->e->code;
    progress_begin(&k->bar, k->c, from, (uint64_t)st->st_size);
    k->in_fd = fd;
    curl_easy_setopt(x.curl, CURLOPT_POST, 1L);
    curl_easy_setopt(x.curl, CURLOPT_READFUNCTION, read_file);
    curl_easy_setopt(x.curl, CURLOPT_READDATA, k);
    curl_easy_setopt(x.curl, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
    if (S_ISREG(st->st_mode))
        curl_easy_setopt(x.curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)st->st_size);
    code = transfer(k, &x);
    api_easy_free(&x);
    return code == ERR_OK ? keep_mode(k, to, st->st_mode) : code;
}

static enum err_code download_file(struct copy *k, const char *from, const struct remote *info,
                                   const char *to)
{
    CLEANUP_FREE char *path = NULL;
    CLEANUP_CLOSE int fd = -1;
    struct api_easy x;
    enum err_code code;

    if (files_path(k, from, &path, k->e) != ERR_OK ||
        api_agent_easy(k->api, &k->sandbox, path, NULL, &x, k->e) != ERR_OK)
        return k->e->code;
    fd = strcmp(to, "-") == 0
             ? dup(STDOUT_FILENO)
             : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600 | (info->mode & 0777));
    if (fd < 0) {
        api_easy_free(&x);
        return err_set_sys(k->e, err_code_from_errno(errno), errno, "cannot write %s", to);
    }
    progress_begin(&k->bar, k->c, from, info->size);
    k->out_fd = fd;
    code = transfer(k, &x);
    api_easy_free(&x);
    return code;
}

/* -- folders ----------------------------------------------------------------------------------- */

/* What a sandbox packs is not to be trusted: whoever unpacks it here must be unable to make device
 * files or to give files away, even as root. tar itself refuses absolute names, "..", and writing
 * through links that came in the archive. */
static void drop_privileges_for_tar(void)
{
    for (unsigned long cap = 0; cap <= CAP_LAST_CAP; cap++)
        if (cap != CAP_DAC_OVERRIDE && cap != CAP_FOWNER)
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* Starts tar here with one end of a pipe as its standard input or output; returns our end. */
static int spawn_tar(const char *const *argv, bool reads, pid_t *pid)
{
    int ends[2], ours, theirs;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    ours = reads ? ends[1] : ends[0];
    theirs = reads ? ends[0] : ends[1];
    *pid = fork();
    if (*pid == 0) {
        session_unblock_signals();
        if (dup2(theirs, reads ? STDIN_FILENO : STDOUT_FILENO) < 0)
            _exit(127);
        drop_privileges_for_tar();
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(theirs);
    if (*pid > 0)
        return ours;
    close(ours);
    return -EAGAIN;
}

static enum err_code wait_tar(struct copy *k, pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return ERR_OK;
    return err_set(k->e, ERR_INTERNAL, "tar failed on this machine");
}

static void show_in(void *arg, uint64_t in_bytes, uint64_t out_bytes)
{
    struct copy *k = arg;

    k->done_bytes = in_bytes;
    progress_step(&k->bar, in_bytes);
}

static void show_out(void *arg, uint64_t in_bytes, uint64_t out_bytes)
{
    struct copy *k = arg;

    k->done_bytes = out_bytes;
    progress_step(&k->bar, out_bytes);
}

static enum err_code make_remote_dir(struct copy *k, const char *path)
{
    json_t *body = json_pack("{s:s}", "path", path);
    enum err_code code = api_agent_call(k->api, &k->sandbox, "filesystem.Filesystem/MakeDir", body,
                                        NULL, k->e);

    json_decref(body);
    return code == ERR_CONFLICT ? ERR_OK : code;
}

static enum err_code upload_dir(struct copy *k, const char *from, const char *to)
{
    const char *argv[] = {"tar", "-C", from, "-cf", "-", ".", NULL};
    enum err_code code = make_remote_dir(k, to);
    pid_t pid = -1;
    int fd, status;

    if (code != ERR_OK)
        return code;
    fd = spawn_tar(argv, false, &pid);
    if (fd < 0)
        return err_set_sys(k->e, ERR_EXHAUSTED, fd, "cannot start tar");
    progress_begin(&k->bar, k->c, from, 0);
    status = remote_run(k, json_pack("[s, s, s, s, s]", "-C", to, "--no-same-owner", "-xf", "-"),
                        "tar", fd, STDOUT_FILENO, show_in);
    close(fd);
    code = wait_tar(k, pid);
    progress_end(&k->bar, k->done_bytes);
    return status == 0 ? code : k->e->code;
}

static enum err_code download_dir(struct copy *k, const char *from, const char *to)
{
    const char *argv[] = {"tar", "-C", to,  "--no-same-owner", "--no-same-permissions",
                          "-xf", "-",  NULL};
    enum err_code code;
    pid_t pid = -1;
    int fd, status;

    if (mkdir(to, 0777) < 0 && errno != EEXIST)
        return err_set_sys(k->e, err_code_from_errno(errno), errno, "cannot make %s", to);
    fd = spawn_tar(argv, true, &pid);
    if (fd < 0)
        return err_set_sys(k->e, ERR_EXHAUSTED, fd, "cannot start tar");
    progress_begin(&k->bar, k->c, from, 0);
    status = remote_run(k, json_pack("[s, s, s, s, s]", "-C", from, "-cf", "-", "."), "tar", -1, fd,
                        show_out);
    close(fd);
    code = wait_tar(k, pid);
    progress_end(&k->bar, k->done_bytes);
    return status == 0 ? code : k->e->code;
}

/* -- cp ---------------------------------------------------------------------------------------- */

/* Into a folder that exists, or one named with a slash at its end, goes under its own name. */
static void target_path(const char *from, const char *to, bool is_dir, char *out, size_t size)
{
    char name[256];
    size_t len = strlen(to);

    base_name(from, name, sizeof(name));
    if (!is_dir && len > 0 && to[len - 1] != '/')
        snprintf(out, size, "%s", to);
    else
        snprintf(out, size, "%s%s%s", to, len > 0 && to[len - 1] != '/' ? "/" : "", name);
}

static enum err_code upload(struct copy *k, const char *from, const char *to)
{
    struct remote there;
    char target[4400];
    struct stat st;

    if (stat(from, &st) < 0)
        return err_set_sys(k->e, err_code_from_errno(errno), errno, "cannot read %s", from);
    if (remote_stat(k, to, &there, k->e) != ERR_OK)
        return k->e->code;
    target_path(from, to, there.directory, target, sizeof(target));
    if (S_ISDIR(st.st_mode))
        return upload_dir(k, from, target);
    return upload_file(k, from, &st, target);
}

static enum err_code download(struct copy *k, const char *from, const char *to)
{
    struct remote there;
    char target[4400];
    struct stat st;
    bool into = stat(to, &st) == 0 && S_ISDIR(st.st_mode);

    if (remote_stat(k, from, &there, k->e) != ERR_OK)
        return k->e->code;
    if (!there.exists)
        return err_set(k->e, ERR_NOT_FOUND, "there is no %s in the sandbox %s", from,
                       k->sandbox.id);
    target_path(from, to, into, target, sizeof(target));
    if (there.directory)
        return download_dir(k, from, target);
    return download_file(k, from, &there, target);
}

int cmd_cp(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    struct copy k = {.c = c, .in_fd = -1, .out_fd = -1, .e = &e};
    const char *user = cli_value(c, "user");
    struct place from, to;
    struct api a;
    bool up;

    if (parse_place(c->operands[0], &from) < 0 || parse_place(c->operands[1], &to) < 0)
        return cli_usage(c, "a path is too long");
    if (!from.sandbox[0] == !to.sandbox[0])
        return cli_usage(c, "exactly one of the two must be SANDBOX:PATH");
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    k.api = &a;
    up = to.sandbox[0] != '\0';
    buf_init(&k.answer, 1u << 20);
    if (api_sandbox_open(&a, up ? to.sandbox : from.sandbox, &k.sandbox, &e) == ERR_OK) {
        snprintf(k.sandbox.user, sizeof(k.sandbox.user), "%s", user ? user : "");
        e.code = up ? upload(&k, from.path, to.path) : download(&k, from.path, to.path);
    }
    if (e.code == ERR_OK && c->json)
        cli_print_json(
            json_pack("{s:s, s:I}", "sandboxID", k.sandbox.id, "bytes", (json_int_t)k.done_bytes));
    buf_free(&k.answer);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
