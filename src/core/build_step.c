/* RUN is the client's command in a login shell, as E2B's. The others change what holds for the
 * steps that follow; where that has to be asked in the sandbox (is there such a user, the value of
 * $PATH), a command asks. Nothing that a sandbox answers is believed beyond what that command could
 * have done anyway: a text of bounded length, which goes back into the same sandbox. */

#include "core/build_step.h"

#include "core/build_command.h"
#include "core/build_copy.h"

#include <stdio.h>
#include <string.h>

/* of a variable's value, with the values of names in it */
#define VALUE_MAX    BUILD_OUTPUT_MAX
#define PROFILE_FILE "/etc/profile.d/cay-path.sh"

/* -- RUN --------------------------------------------------------------------------------------- */

static void finish(struct build_run *r)
{
    build_command_later(r, r->step_done);
}

/* In the words of E2B's builder, which its clients' tests know. */
static void on_command(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_run *r = arg;
    char what[256];

    (void)snprintf(what, sizeof(what), "failed to run command '%.120s'%s%s",
                   r->spec.steps[r->at].words[0], why ? ": command failed" : "",
                   why && strncmp(why->text, "invalid username", 16) == 0 ? ": unauthenticated"
                                                                          : "");
    build_command_failed(r, what, x, why);
    finish(r);
}

static void on_run(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_run *r = arg;
    char what[256];

    build_spec_show(&r->spec.steps[r->at], what, sizeof(what));
    build_command_failed(r, what, x, why);
    finish(r);
}

static void step_run(struct build_run *r, const struct build_step *s)
{
    const struct build_command c = {.user = s->n > 1 && *s->words[1] ? s->words[1] : r->user,
                                    .cwd = r->cwd,
                                    .cmd = "/bin/bash",
                                    .args = json_pack("[s, s, s]", "-l", "-c", s->words[0]),
                                    .logged = true};

    build_command(r, &c, on_command);
}

/* -- WORKDIR, USER ----------------------------------------------------------------------------- */

/* script as root, with two arguments. */
static void run_script(struct build_run *r, const char *script, const char *one, const char *two,
                       core_exec_cb done)
{
    const struct build_command c = {
        .user = "root",
        .cwd = "/",
        .cmd = "/bin/sh",
        .args = json_pack("[s, s, s, s, s]", "-c", script, "sh", one, two),
        .logged = true};

    build_command(r, &c, done);
}

static void step_workdir(struct build_run *r, const struct build_step *s)
{
    char path[BUILD_RUN_PATH_SIZE];
    bool absolute = s->words[0][0] == '/';
    int n = snprintf(path, sizeof(path), "%s%s%s",
                     absolute || strcmp(r->cwd, "/") == 0 ? "" : r->cwd, absolute ? "" : "/",
                     s->words[0]);

    if ((size_t)n >= sizeof(path)) {
        /* a command that fails says so, in the sandbox */
        run_script(r, "echo 'the path is too long' >&2; exit 1", "", "", on_run);
        return;
    }
    memcpy(r->cwd, path, (size_t)n + 1);
    run_script(r,
               "[ -d \"$1\" ] || { mkdir -p -- \"$1\" && "
               "chown -- \"$2:$(id -g -- \"$2\")\" \"$1\"; }",
               r->cwd, r->user, on_run);
}

static void step_user(struct build_run *r, const struct build_step *s)
{
    if (strlen(s->words[0]) >= sizeof(r->user)) {
        run_script(r, "echo 'the name is too long' >&2; exit 1", "", "", on_run);
        return;
    }
    (void)snprintf(r->user, sizeof(r->user), "%s", s->words[0]);
    run_script(r, "id -u -- \"$1\" > /dev/null", r->user, "", on_run);
}

/* -- ENV --------------------------------------------------------------------------------------- */

static void next_variable(struct build_run *r);

static void set_variable(struct build_run *r, const char *value)
{
    const char *name = r->spec.steps[r->at].words[r->word];

    if (json_object_set_new(r->env, name, json_string(value)) < 0)
        build_run_fail(r, "ENV: a value is not UTF-8, or memory is out");
}

static void on_value(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_run *r = arg;
    char *value;

    if (build_command_failed(r, "ENV", x, why) || x->truncated) {
        build_run_fail(r, "ENV: a value has more than %u bytes", VALUE_MAX);
        finish(r);
        return;
    }
    value = strndup(x->output[EXEC_STDOUT], x->output_len[EXEC_STDOUT]);
    if (!value) {
        build_run_fail(r, "ENV: memory is out");
        finish(r);
        return;
    }
    set_variable(r, value);
    free(value);
    r->word += 2;
    next_variable(r);
}

/* As upstream: a value with $ is a shell's word in double quotes. */
static void expand(struct build_run *r, const char *value)
{
    json_t *script = json_sprintf("printf %%s \"%s\"", value);
    const struct build_command c = {.user = r->user,
                                    .cwd = r->cwd,
                                    .cmd = "/bin/bash",
                                    .args = json_pack("[s, s, o]", "-l", "-c", script)};

    build_command(r, &c, on_value);
}

/* text as one word of a shell's. */
static int quote(struct buf *out, const char *text)
{
    int rc = buf_append_str(out, "'");

    for (; rc == 0 && *text; text++)
        rc = *text == '\'' ? buf_append_str(out, "'\\''") : buf_append(out, text, 1);
    return rc < 0 ? rc : buf_append_str(out, "'");
}

static bool sets_path(const struct build_step *s)
{
    for (size_t i = 0; i < s->n; i += 2)
        if (strcmp(s->words[i], "PATH") == 0)
            return true;
    return false;
}

/* Debian's /etc/profile sets PATH anew for login shells, and then reads this. */
static void write_profile(struct build_run *r)
{
    const char *path = json_string_value(json_object_get(r->env, "PATH"));
    CLEANUP_BUF struct buf text;

    buf_init(&text, 8u * VALUE_MAX);
    if (!path || buf_append_str(&text, "export PATH=") < 0 || quote(&text, path) < 0 ||
        buf_append_str(&text, "\n") < 0) {
        build_run_fail(r, "ENV: PATH is too long, or memory is out");
        finish(r);
        return;
    }
    build_write_file(r, PROFILE_FILE, text.data, r->step_done);
}

static void next_variable(struct build_run *r)
{
    const struct build_step *s = &r->spec.steps[r->at];

    for (; !r->failed && r->word < s->n; r->word += 2) {
        const char *value = s->words[r->word + 1];

        if (strchr(value, '$')) {
            expand(r, value);
            return;
        }
        if (strlen(value) > VALUE_MAX)
            build_run_fail(r, "ENV: a value has more than %u bytes", VALUE_MAX);
        else
            set_variable(r, value);
    }
    if (!r->failed && sets_path(s))
        write_profile(r);
    else
        finish(r);
}

/* -- all --------------------------------------------------------------------------------------- */

void build_step_begin(struct build_run *r, void (*done)(struct build_run *r))
{
    const struct build_step *s = &r->spec.steps[r->at];

    r->step_done = done;
    build_log_command(&r->o->log, r->step, true);
    switch (s->op) {
    case BUILD_OP_RUN: step_run(r, s); return;
    case BUILD_OP_WORKDIR: step_workdir(r, s); return;
    case BUILD_OP_USER: step_user(r, s); return;
    case BUILD_OP_ENV:
        r->word = 0;
        next_variable(r);
        return;
    case BUILD_OP_COPY: build_copy_begin(r, done); return;
    case BUILD_OP_COUNT: break; /* build_spec_check has seen to it */
    }
}
