/* `snapshot export` and `snapshot import`: a snapshot as a file for servers of one operator. The
 * file is there when it is whole; it has all the files of a sandbox, so it is its owner's alone. */

#include "base/io.h"
#include "base/plain_name.h"
#include "cli/commands.h"
#include "cli/receive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define ANSWER_MAX (64u * 1024)
#define SILENT_S   1800L /* the server makes the file, or checks it, and says nothing meanwhile */

struct file_body {
    CURL *curl;
    int fd; /* -1: the answer is no file */
    uint64_t bytes;
    struct buf answer; /* an error, or what was made */
    struct progress bar;
};

static size_t write_some(char *data, size_t size, size_t n, void *arg)
{
    struct file_body *p = arg;
    long status = 0;

    n *= size;
    curl_easy_getinfo(p->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400 || p->fd < 0)
        return buf_append(&p->answer, data, n) == 0 ? n : 0;
    if (io_write_full(p->fd, data, n) < 0)
        return 0;
    p->bytes += n;
    progress_step(&p->bar, p->bytes);
    return n;
}

static size_t read_some(char *out, size_t size, size_t n, void *arg)
{
    struct file_body *p = arg;
    ssize_t got = io_read_some(p->fd, out, size * n);

    if (got < 0)
        return CURL_READFUNC_ABORT;
    p->bytes += (uint64_t)got;
    progress_step(&p->bar, p->bytes);
    return (size_t)got;
}

/* The answer's text is in p->answer, ended by a zero. */
static enum err_code run(struct api *a, struct api_easy *x, struct file_body *p, struct err *e)
{
    long status = 0;
    CURLcode r;

    p->curl = x->curl;
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, write_some);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_TIME, SILENT_S);
    r = api_easy_run(a, x);
    if (buf_append(&p->answer, "", 1) < 0)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) /* also where the server did not read the rest of the file */
        return api_status_error(status, p->answer.data, e);
    if (r == CURLE_WRITE_ERROR)
        return err_set_sys(e, err_code_from_errno(errno), errno, "cannot write here");
    if (r != CURLE_OK)
        return api_curl_error(a, x, r, e);
    progress_end(&p->bar, p->bytes);
    return ERR_OK;
}

/* -- export ------------------------------------------------------------------------------------ */

static enum err_code fetch(struct cli *c, struct api *a, int fd, uint64_t *bytes, struct err *e)
{
    struct file_body p = {.fd = fd, .answer = {.max = ANSWER_MAX}};
    const char *name = c->operands[0];
    struct api_easy x;
    char path[160];

    if (!plain_name_is_segment(name, 100))
        return err_set(e, ERR_INVALID, "\"%.100s\" is no name of a snapshot", name);
    (void)snprintf(path, sizeof(path), "/cay/v1/snapshots/%s/export", name);
    if (api_control_easy(a, path, &x, e) != ERR_OK)
        return e->code;
    progress_begin(&p.bar, c, name, 0);
    (void)run(a, &x, &p, e);
    api_easy_free(&x);
    buf_free(&p.answer);
    *bytes = p.bytes;
    return e->code;
}

int cmd_snapshot_export(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    uint64_t bytes = 0;
    struct receive to;
    struct api a;
    char size[32];

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (receive_file(&to, c->operands[1], 0600, &e) == ERR_OK &&
        fetch(c, &a, to.fd, &bytes, &e) == ERR_OK)
        receive_end(&to, true, &e);
    else if (e.code != ERR_OK && to.fd >= 0)
        receive_end(&to, false, NULL);
    api_close(&a);
    if (e.code != ERR_OK)
        return cli_fail(c, &e);
    table_bytes(bytes, size, sizeof(size));
    if (c->json)
        cli_print_json(json_pack("{s:s, s:s, s:I}", "snapshot", c->operands[0], "file",
                                 c->operands[1], "bytes", (json_int_t)bytes));
    else if (!cli_flag(c, "quiet"))
        printf("%s is in %s: %s\n", c->operands[0], c->operands[1], size);
    return CLI_OK;
}

/* -- import ------------------------------------------------------------------------------------ */

static enum err_code send_file(struct cli *c, struct api *a, int fd, json_t **made, struct err *e)
{
    struct file_body p = {.fd = -1, .answer = {.max = ANSWER_MAX}}, from = {.fd = fd};
    char path[256] = "/cay/v1/snapshots/import";
    struct api_easy x;
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is no file", c->operands[0]);
    if (c->operand_count > 1 && cli_add_query(path, sizeof(path), "name", c->operands[1]) < 0)
        return err_set(e, ERR_INVALID, "\"%.100s\" is no name of a snapshot", c->operands[1]);
    if (api_control_easy(a, path, &x, e) != ERR_OK)
        return e->code;
    progress_begin(&from.bar, c, c->operands[0], (uint64_t)st.st_size);
    curl_easy_setopt(x.curl, CURLOPT_POST, 1L);
    curl_easy_setopt(x.curl, CURLOPT_READFUNCTION, read_some);
    curl_easy_setopt(x.curl, CURLOPT_READDATA, &from);
    curl_easy_setopt(x.curl, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
    curl_easy_setopt(x.curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)st.st_size);
    if (api_easy_header(&x, "Content-Type: application/vnd.cay.snapshot") < 0)
        err_set(e, ERR_EXHAUSTED, "out of memory");
    else if (run(a, &x, &p, e) == ERR_OK && !(*made = json_loads(p.answer.data, 0, NULL)))
        err_set(e, ERR_INTERNAL, "the server's answer is no JSON");
    api_easy_free(&x);
    buf_free(&p.answer);
    return e->code;
}

int cmd_snapshot_import(struct cli *c)
{
    CLEANUP_CLOSE int fd = open(c->operands[0], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct err e = {.code = ERR_OK};
    json_t *made = NULL;
    struct api a;

    if (fd < 0) {
        err_set_sys(&e, err_code_from_errno(errno), errno, "cannot open %s", c->operands[0]);
        return cli_fail(c, &e);
    }
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    (void)send_file(c, &a, fd, &made, &e);
    api_close(&a);
    if (e.code != ERR_OK)
        return cli_fail(c, &e);
    show_made(c, made, "snapshotID");
    json_decref(made);
    return CLI_OK;
}
