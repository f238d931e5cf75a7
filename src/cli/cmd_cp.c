/* cp: single files as HTTP bodies, folders as tar streams through a process in the sandbox. The
 * direction is the argument with a colon. Files from a sandbox go through receive.c, since their
 * names are the sandbox's choice; files that go there are read here and sent as they are read. */
#include "base/io.h"
#include "cli/commands.h"
#include "cli/receive.h"
#include "cli/session.h"
#include "cli/tar.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>

#define MESSAGES_MAX_BYTES 4096u /* of a helper program that are shown */

struct location {
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
    int in_fd, out_fd; /* the file that is sent; where the answer goes, or -1 */
    uint64_t done_bytes;
    struct err *e;
};

/* ID:PATH is a sandbox when ID looks like one; ./a:b and /a:b are files. */
static int parse_location(const char *text, struct location *out)
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

/* A helper's messages can be whatever the sandbox likes: each line says whose it is, and controls
 * nothing. */
static void show_messages(const char *whose, struct buf *text)
{
    char *rest = text->len > 0 ? text->data : NULL, *line;

    for (size_t i = 0; i < text->len; i++)
        if (!text->data[i])
            text->data[i] = '?';
    while ((line = strsep(&rest, "\n"))) {
        if (!line[0])
            continue;
        terminal_put(stderr, whose, line);
        fputc('\n', stderr);
    }
}

/* Runs a program in the sandbox between two descriptors of ours, -1 for none. */
static int remote_run(struct copy *k, json_t *args, const char *cmd, int in_fd, int out_fd,
                      void (*progress)(void *arg, uint64_t in, uint64_t out))
{
    json_t *process = json_pack("{s:s, s:o}", "cmd", cmd, "args", args);
    CLEANUP_BUF struct buf errors;
    struct session_spec spec = {
        .sandbox = &k->sandbox,
        .process = process,
        .in_fd = in_fd,
        .out_fd = out_fd,
        .err_fd = -1,
        .errors = &errors,
        .progress = progress,
        .progress_arg = k,
    };
    int status;

    buf_init(&errors, MESSAGES_MAX_BYTES);
    if (!process) {
        err_set(k->e, ERR_INVALID, "the path is not valid UTF-8");
        return CLI_FAILED;
    }
    status = session_run(k->api, &spec, k->e);
    json_decref(process);
    show_messages("cay: the sandbox says: ", &errors);
    if (status != 0 && k->e->code == ERR_OK)
        err_set(k->e, ERR_INTERNAL, "%s ended with status %d in the sandbox", cmd, status);
    return status;
}

/* mode: of a program, which must stay one; 0: of new files 0644. */
static enum err_code files_path(struct copy *k, const char *path, unsigned mode, char **out,
                                struct err *e)
{
    char *escaped = curl_easy_escape(NULL, path, 0);
    char *user = curl_easy_escape(NULL, k->sandbox.user, 0);
    char wanted[16] = "";
    int n = -1;

    if (mode)
        snprintf(wanted, sizeof(wanted), "&mode=%04o", mode);
    if (escaped && user)
        n = asprintf(out, "/files?path=%s%s%s%s", escaped, user[0] ? "&username=" : "", user,
                     wanted);
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

static enum err_code upload_file(struct copy *k, const char *from, const struct stat *st,
                                 const char *to)
{
    CLEANUP_CLOSE int fd = open(from, O_RDONLY | O_CLOEXEC);
    CLEANUP_FREE char *path = NULL;
    struct api_easy x;
    enum err_code code;

    if (fd < 0)
        return err_set_sys(k->e, err_code_from_errno(errno), errno, "cannot open %s", from);
    if (files_path(k, to, st->st_mode & 0111 ? st->st_mode & 0777 : 0, &path, k->e) != ERR_OK ||
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
    return code;
}

static enum err_code fetch_file(struct copy *k, const char *from, const struct remote *info,
                                int out_fd)
{
    CLEANUP_FREE char *path = NULL;
    struct api_easy x;
    enum err_code code;

    if (files_path(k, from, 0, &path, k->e) != ERR_OK ||
        api_agent_easy(k->api, &k->sandbox, path, NULL, &x, k->e) != ERR_OK)
        return k->e->code;
    progress_begin(&k->bar, k->c, from, info->size);
    k->out_fd = out_fd;
    code = transfer(k, &x);
    api_easy_free(&x);
    return code;
}

static enum err_code download_file(struct copy *k, const char *from, const struct remote *info,
                                   const char *to)
{
    struct receive r;
    enum err_code code;

    if (strcmp(to, "-") == 0)
        return fetch_file(k, from, info, STDOUT_FILENO);
    if (receive_file(&r, to, info->mode, k->e) != ERR_OK)
        return k->e->code;
    code = fetch_file(k, from, info, r.fd);
    if (code != ERR_OK) {
        receive_end(&r, false, NULL);
        return code;
    }
    return receive_end(&r, true, k->e);
}

/* -- folders ----------------------------------------------------------------------------------- */

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

/* status: of the tar in the sandbox, whose failure is told before ours. */
static enum err_code end_tar(struct copy *k, struct tar *tar, int status)
{
    struct err e = {.code = ERR_OK};
    CLEANUP_BUF struct buf messages;
    enum err_code code;

    buf_init(&messages, MESSAGES_MAX_BYTES);
    code = tar_end(tar, &messages, &e);
    show_messages("cay: ", &messages);
    progress_end(&k->bar, k->done_bytes);
    if (status != 0)
        return k->e->code;
    if (code != ERR_OK)
        *k->e = e;
    return code;
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
    enum err_code code = make_remote_dir(k, to);
    struct tar tar;
    int status;

    if (code != ERR_OK)
        return code;
    if (tar_pack(&tar, from, k->e) != ERR_OK)
        return k->e->code;
    progress_begin(&k->bar, k->c, from, 0);
    status = remote_run(k, json_pack("[s, s, s, s, s]", "-C", to, "--no-same-owner", "-xf", "-"),
                        "tar", tar.fd, -1, show_in);
    return end_tar(k, &tar, status);
}

/* Received files are put into place even when one of the two ends failed, as with cp. */
static enum err_code download_dir(struct copy *k, const char *from, const char *to)
{
    enum err_code code, placed;
    struct err e = {.code = ERR_OK};
    struct receive r;
    struct tar tar;
    int status;

    if (receive_folder(&r, to, k->e) != ERR_OK)
        return k->e->code;
    if (tar_unpack(&tar, r.fd, k->e) != ERR_OK) {
        receive_end(&r, false, NULL);
        return k->e->code;
    }
    progress_begin(&k->bar, k->c, from, 0);
    status = remote_run(k, json_pack("[s, s, s, s, s]", "-C", from, "-cf", "-", "."), "tar", -1,
                        tar.fd, show_out);
    code = end_tar(k, &tar, status);
    placed = receive_end(&r, true, &e);
    if (code == ERR_OK && placed != ERR_OK)
        *k->e = e;
    return code == ERR_OK ? placed : code;
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
    struct location from, to;
    struct api a;
    bool up;

    if (parse_location(c->operands[0], &from) < 0 || parse_location(c->operands[1], &to) < 0)
        return cli_usage(c, "a path is too long");
    if (!from.sandbox[0] == !to.sandbox[0])
        return cli_usage(c, "exactly one of the two must be SANDBOX:PATH");
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    k.api = &a;
    up = to.sandbox[0] != '\0';
    buf_init(&k.answer, 1u << 20);
    if (api_sandbox_enter(&a, up ? to.sandbox : from.sandbox, &k.sandbox, &e) == ERR_OK) {
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
