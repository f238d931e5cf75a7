/* A template as an image in one file. It is
 * read by tar in a sandbox of the caller's, so that nothing but what its key could read anyway is
 * read, and nothing of the server's is opened for it: the sandbox is made of NAME, reaches nothing,
 * and does not run the start command. tar's stream is the image's only layer (oci_archive.h); what
 * the template says of its variables and its command (/etc/cay, agent/start_command.h) becomes the
 * image's configuration. The sandbox is ended in every case. */

#include "cli/template_image.h"

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT_TTL_MS   (60ull * 60 * 1000)
#define EXPORT_SAID_MAX 4096u /* of tar's, that are shown */
#define EXPORT_NOTE_MAX 65536u
#define TAR_HINT        "The template has to have GNU tar (the package tar)."
#define START           "/files?path=/etc/cay/start.json&username=root"
#define IMAGE           "/files?path=/etc/cay/image.json&username=root"

struct image_of {
    const struct cli *c;
    struct api *api;
    const char *name, *shown;
    struct api_sandbox sandbox;
    struct progress bar;
    struct oci_archive archive;
    json_t *start, *image; /* NULL: there is none */
    uint64_t until_ms, layer_bytes;
};

/* -- the sandbox ------------------------------------------------------------------------------- */

/* Programs of the server's machine are no part of what lies on them. */
static enum err_code refuse_host(struct image_of *x, struct err *e)
{
    json_t *detail = NULL;
    char path[128];
    bool host;

    (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s", x->sandbox.id);
    if (api_call(x->api, "GET", path, NULL, &detail, e) != ERR_OK)
        return e->code;
    host = strcmp(cli_text(detail, "templateID"), "host") == 0;
    json_decref(detail);
    if (!host)
        return ERR_OK;
    err_set(e, ERR_CONFLICT,
            "'%.100s' cannot be exported: it is, or lies on, the template host, and its programs "
            "are those of the server's machine",
            x->name);
    err_hint(e, "Build it on base (FROM base; `cay template build base` makes that), or import an "
                "image.");
    return e->code;
}

static enum err_code make_sandbox(struct image_of *x, struct err *e)
{
    const char *name = x->name;
    json_t *body = json_pack("{s:s, s:I, s:b, s:{s:s}}", "templateID", name, "timeout",
                             (json_int_t)(EXPORT_TTL_MS / 1000), "startCommand", 0, "metadata",
                             "cay.export", name);
    json_t *made = NULL;
    char id[sizeof(x->sandbox.id)];

    if (!body)
        return err_set(e, ERR_INVALID, "the name is not valid UTF-8");
    if (api_call(x->api, "POST", "/cay/v1/sandboxes", body, &made, e) == ERR_OK) {
        (void)snprintf(id, sizeof(id), "%s", cli_text(made, "sandboxID"));
        memcpy(x->sandbox.id, id, sizeof(id)); /* from here on it is ended */
        if (api_sandbox_enter(x->api, id, &x->sandbox, e) == ERR_OK)
            (void)snprintf(x->sandbox.user, sizeof(x->sandbox.user), "root");
    }
    json_decref(made);
    json_decref(body);
    return e->code == ERR_OK ? refuse_host(x, e) : e->code;
}

/* -- its files --------------------------------------------------------------------------------- */

static size_t keep_text(char *data, size_t size, size_t n, void *arg)
{
    return buf_append(arg, data, size * n) == 0 ? size * n : 0;
}

/* The file is the template's: one that is not understood says nothing. */
static enum err_code read_note(struct image_of *x, const char *path, json_t **out, struct err *e)
{
    CLEANUP_BUF struct buf text;
    struct api_easy call;
    long status = 0;
    CURLcode r;

    buf_init(&text, EXPORT_NOTE_MAX);
    if (api_agent_easy(x->api, &x->sandbox, path, NULL, &call, e) != ERR_OK)
        return e->code;
    curl_easy_setopt(call.curl, CURLOPT_WRITEFUNCTION, keep_text);
    curl_easy_setopt(call.curl, CURLOPT_WRITEDATA, &text);
    r = api_easy_run(x->api, &call);
    curl_easy_getinfo(call.curl, CURLINFO_RESPONSE_CODE, &status);
    if (r != CURLE_OK && r != CURLE_WRITE_ERROR)
        api_curl_error(x->api, &call, r, e);
    else if (status == 200 && r == CURLE_OK && text.len > 0)
        *out = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    else if (status >= 500)
        api_status_error(status, text.data, e);
    api_easy_free(&call);
    return e->code;
}

static void show(void *arg, uint64_t in_bytes, uint64_t out_bytes)
{
    struct image_of *x = arg;

    x->layer_bytes = out_bytes;
    progress_step(&x->bar, out_bytes);
}

/* Each line is the sandbox's. */
static void show_messages(struct buf *text)
{
    char *rest = text->len > 0 ? text->data : NULL, *line;

    while ((line = strsep(&rest, "\n"))) {
        if (!line[0])
            continue;
        terminal_put(stderr, "cay: the sandbox says: ", line);
        fputc('\n', stderr);
    }
}

/* Of the root's file system alone, where /sys is too: it is each sandbox's own, as /proc, /dev and
 * /run are. */
static json_t *tar_command(void)
{
    return json_pack("{s:s, s:[s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s]}", "cmd",
                     "tar", "args", "-C", "/", "--one-file-system", "--format=posix", "--sparse",
                     "--pax-option=delete=atime,delete=ctime", "--numeric-owner", "--xattrs",
                     "--xattrs-include=*", "--sort=name", "--exclude=./proc/*", "--exclude=./sys/*",
                     "--exclude=./dev/*", "--exclude=./run/*", "--exclude=./etc/cay",
                     "--warning=no-xdev", "-cf", "-", ".");
}

static enum err_code write_layer(struct image_of *x, struct err *e)
{
    CLEANUP_BUF struct buf messages;
    uint64_t now = clock_mono_ms();
    json_t *process = tar_command();
    struct session_spec spec = {.sandbox = &x->sandbox,
                                .process = process,
                                .in_fd = -1,
                                .out_fd = x->archive.fd,
                                .err_fd = -1,
                                .errors = &messages,
                                .out_max = IMAGE_BLOB_MAX,
                                .timeout_ms = x->until_ms > now ? x->until_ms - now : 1,
                                .progress = show,
                                .progress_arg = x};
    int status;

    buf_init(&messages, EXPORT_SAID_MAX);
    progress_begin(&x->bar, x->c, x->shown, 0);
    status = session_run(x->api, &spec, e);
    json_decref(process);
    progress_end(&x->bar, x->layer_bytes);
    show_messages(&messages);
    if (status == CLI_NOT_RUN || status == CLI_NO_PROGRAM)
        err_hint(e, TAR_HINT);
    if (status == 0 || e->code != ERR_OK)
        return e->code;
    if (x->layer_bytes > IMAGE_BLOB_MAX)
        return err_set(e, ERR_TOO_LARGE, "the files are more than a layer may have: %llu bytes",
                       IMAGE_BLOB_MAX);
    if (lseek(x->archive.fd, 0, SEEK_CUR) != x->archive.layer_at + (off_t)x->layer_bytes)
        return err_set(e, ERR_NO_SPACE, "the files could not be written whole");
    err_set(e, ERR_INTERNAL, "tar ended with status %d in the sandbox", status);
    err_hint(e, TAR_HINT);
    return e->code;
}

/* -- its configuration ------------------------------------------------------------------------- */

static json_t *variables(const json_t *env)
{
    json_t *out = json_array(), *value;
    const char *name;

    json_object_foreach ((json_t *)(uintptr_t)env, name, value)
        if (json_is_string(value))
            json_array_append_new(out, json_sprintf("%s=%s", name, json_string_value(value)));
    return out;
}

static void set_text(json_t *out, const char *key, const json_t *value, const char *otherwise)
{
    const char *text = json_string_value(value);

    if (!text || !*text)
        text = otherwise;
    if (text)
        json_object_set_new(out, key, json_string(text));
}

/* Adds the command that each sandbox of the template runs. */
static void take_start(json_t *out, const json_t *start)
{
    json_int_t port = json_integer_value(json_object_get(start, "port"));
    json_t *cmd = json_object_get(start, "cmd");
    char name[16];

    json_object_set_new(out, "Cmd", json_pack("[s, s, O]", "/bin/sh", "-c", cmd));
    set_text(out, "User", json_object_get(start, "user"), "root");
    set_text(out, "WorkingDir", json_object_get(start, "cwd"), "/");
    if (port < 1 || port > 65535)
        return;
    (void)snprintf(name, sizeof(name), "%d/tcp", (int)port);
    json_object_set_new(out, "ExposedPorts", json_pack("{s:{}}", name));
}

static void take_list(json_t *out, const char *key, json_t *list)
{
    if (json_array_size(list) > 0)
        json_object_set(out, key, list);
}

/* Adds the settings of an image that was imported without --start. */
static void take_image(json_t *out, const json_t *image)
{
    json_t *ports = json_object(), *port;
    size_t i;

    json_array_foreach (json_object_get(image, "ports"), i, port)
        if (json_is_string(port))
            json_object_set_new(ports, json_string_value(port), json_object());
    take_list(out, "Entrypoint", json_object_get(image, "entrypoint"));
    take_list(out, "Cmd", json_object_get(image, "cmd"));
    set_text(out, "User", json_object_get(image, "user"), NULL);
    set_text(out, "WorkingDir", json_object_get(image, "cwd"), NULL);
    if (json_object_size(ports) > 0)
        json_object_set(out, "ExposedPorts", ports);
    json_decref(ports);
}

static json_t *configuration(const struct image_of *x)
{
    json_t *out = json_object();

    json_object_set_new(out, "Env", variables(json_object_get(x->start, "env")));
    if (json_is_string(json_object_get(x->start, "cmd")))
        take_start(out, x->start);
    else if (x->image)
        take_image(out, x->image);
    return out;
}

/* -- the whole --------------------------------------------------------------------------------- */

static enum err_code write_archive(struct image_of *x, int fd, struct err *e)
{
    json_t *config;
    char by[200];

    if (make_sandbox(x, e) != ERR_OK || read_note(x, START, &x->start, e) != ERR_OK ||
        read_note(x, IMAGE, &x->image, e) != ERR_OK ||
        oci_archive_begin(&x->archive, fd, e) != ERR_OK || write_layer(x, e) != ERR_OK ||
        oci_archive_end_layer(&x->archive, x->layer_bytes, e) != ERR_OK)
        return e->code;
    (void)snprintf(by, sizeof(by), "cay template export %.100s", x->name);
    config = configuration(x);
    oci_archive_end(&x->archive, config, by, e);
    json_decref(config);
    return e->code;
}

static void write_and_end(struct image_of *x, int fd, struct err *e)
{
    struct err late = {.code = ERR_OK};

    write_archive(x, fd, e);
    if (x->sandbox.id[0] && sandbox_kill(x->api, x->sandbox.id, &late) != ERR_OK &&
        late.code != ERR_NOT_FOUND)
        fprintf(stderr, "cay: the sandbox %s is left behind: %s\n", x->sandbox.id, late.text);
    if (e->code == ERR_OK && session_signal_waits())
        err_set(e, ERR_CANCELED, "it was stopped");
}

enum err_code template_image_write(struct cli *c, const char *shown, int fd,
                                   struct template_image *out, struct err *e)
{
    struct image_of x = {.c = c,
                         .name = c->operands[0],
                         .shown = shown,
                         .until_ms = clock_mono_ms() + EXPORT_TTL_MS};
    struct api a;

    if (api_open(&a, c, e) != ERR_OK)
        return e->code;
    x.api = &a;
    session_block_signals(); /* as `cay run`: no sandbox is left behind */
    write_and_end(&x, fd, e);
    session_unblock_signals();
    api_close(&a);
    json_decref(x.start);
    json_decref(x.image);
    out->layer_bytes = x.layer_bytes;
    (void)snprintf(out->digest, sizeof(out->digest), "%s", x.archive.manifest.digest);
    return e->code;
}
