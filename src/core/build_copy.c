/* The pieces are files of a folder of root's in the sandbox, so that no more than one of them is in
 * memory here; the script joins them, removing each. */

#include "core/build_copy.h"

#include "core/agent_file_call.h"
#include "core/build_command.h"
#include "core/build_files.h"
#include "core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES (1024u * 1024u)
#define FOLDER      "/tmp/cay-copy"

/* $1 source as the client named it, $2 target, $3 owner or nothing, $4 mode or nothing, $5 what tar
 * is told where several archives stand one behind the other, or nothing. Without a group it is the
 * owner's own, of a number the same number. A folder's contents go
 * into the target, which is made with that owner and mode where it is not there; a file gets its
 * name, or goes into it where it is a folder or ends with a slash. Folders above that are made have
 * that owner too, and not the mode, which may be one of files. Several sources (of a pattern) go
 * into it, each by the same rule. */
static const char script[] =
    "set -e; own=$3; mode=$4; case $own in *:*|'') ;; *[!0-9]*) own=$own:;; *) own=$own:$own;; "
    "esac; d=" FOLDER "; trap 'rm -rf \"$d\"' EXIT; mkdir -p \"$d/x\"; chmod 700 \"$d\"\n"
    "for p in \"$d\"/part-*; do cat \"$p\"; rm -f \"$p\"; done > \"$d/all\"\n"
    "tar $5 --no-same-owner -xpf \"$d/all\" -C \"$d/x\"; rm -f \"$d/all\"; cd \"$d/x\"\n"
    "[ -z \"$own\" ] || find . -mindepth 1 -exec chown -h -- \"$own\" {} +\n"
    "[ -z \"$4\" ] || find . -mindepth 1 ! -type l -exec chmod -- \"$4\" {} +\n"
    "folders() { [ ! -d \"$1\" ] || return 0; folders \"$(dirname -- \"$1\")\"\n"
    "  [ ! -d \"$1\" ] || return 0; mkdir -- \"$1\"; [ -z \"$own\" ] || chown -- \"$own\" \"$1\"; "
    "}\n"
    "make() { [ ! -d \"$1\" ] || return 0; folders \"$1\"\n"
    "  [ -z \"$mode\" ] || chmod -- \"$mode\" \"$1\"; }\n"
    "put() { case $2 in */) t=$2${1##*/};; *) t=$2; [ ! -d \"$t\" ] || t=$t/${1##*/};; esac\n"
    "  if [ -d \"$1\" ] && [ ! -L \"$1\" ]; then make \"$2\"\n"
    "    tar -C \"$1\" -cf - . | tar --no-overwrite-dir -xpf - -C \"$2\"\n"
    "  else folders \"$(dirname -- \"$t\")\"; cp -af -- \"$1\" \"$t\"; fi; }\n"
    "s=${1#./}; s=${s%/}; [ \"$s\" != . ] || s=; n=\"$2\"\n"
    "if [ -z \"$s\" ]; then put . \"$n\"\n"
    "elif [ -e \"$s\" ] || [ -L \"$s\" ]; then put \"$s\" \"$n\"\n"
    "else f=; IFS=; for one in $s; do [ -e \"$one\" ] || [ -L \"$one\" ] || continue; f=1\n"
    "  put \"$one\" \"${n%/}/\"; done\n"
    "  [ -n \"$f\" ] || put . \"$n\"; fi";

void build_copy_free(struct build_run *r)
{
    util_close(&r->copy_fd);
}

static void on_unpacked(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_run *r = arg;
    char what[256];

    build_spec_show(&r->spec.steps[r->at], what, sizeof(what));
    build_command_failed(r, what, x, why);
    r->step_done(r);
}

/* A target that is a folder keeps the slash that says so. */
static void target_of(const struct build_run *r, const char *to, char *out, size_t size)
{
    bool absolute = to[0] == '/', here = strcmp(to, ".") == 0 || !*to;

    (void)snprintf(out, size, "%s%s%s", absolute ? "" : r->cwd,
                   absolute || strcmp(r->cwd, "/") == 0 ? "" : "/", here ? "" : to);
}

static void unpack(struct build_run *r)
{
    const struct build_step *s = &r->spec.steps[r->at];
    CLEANUP_FREE char *target = malloc(CORE_BUILD_TEXT_MAX + BUILD_RUN_PATH_SIZE + 2);
    struct build_command c = {.user = "root", .cwd = "/", .cmd = "/bin/sh", .logged = true};

    if (target)
        target_of(r, s->words[1], target, CORE_BUILD_TEXT_MAX + BUILD_RUN_PATH_SIZE + 2);
    c.args = json_pack("[s, s, s, s, s, s, s, s]", "-c", script, "sh", s->words[0],
                       target ? target : "/nothing/",
                       s->n > 2 && *s->words[2] ? s->words[2] : r->user,
                       s->n > 3 ? s->words[3] : "", strchr(s->files, ',') ? "--ignore-zeros" : "");
    build_command(r, &c, on_unpacked);
}

static void next_piece(struct build_run *r);
static void next_archive(struct build_run *r);

static void on_sent(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct build_run *r = arg;

    if (why)
        build_run_fail(r, "COPY: sending the files into the sandbox: %s", why->text);
    else if (status / 100 != 2)
        build_run_fail(r, "COPY: the sandbox took no more of the files (%d): %.*s", status,
                       (int)MIN(len, (size_t)200), body ? body : "");
    if (r->failed || r->core->stopping)
        r->step_done(r);
    else
        next_piece(r);
}

/* Reads the next piece of a file that was received a moment ago: it is in memory as a rule, and
 * short. */
static void next_piece(struct build_run *r)
{
    char target[128], *piece = malloc(PIECE_BYTES);
    ssize_t n = piece ? read(r->copy_fd, piece, PIECE_BYTES) : -ENOMEM;
    struct core_agent_file_call call = {.method = "POST",
                                        .target = target,
                                        .type = "application/octet-stream",
                                        .body = piece,
                                        .body_len = n > 0 ? (size_t)n : 0,
                                        .max_response = 4096};

    if (n <= 0) {
        free(piece);
        util_close(&r->copy_fd);
        if (*r->copy_left)
            next_archive(r);
        else
            unpack(r);
        return;
    }
    (void)snprintf(target, sizeof(target), "/files?path=" FOLDER "/part-%06u&username=root",
                   r->copy_piece++);
    core_agent_file_call(r->core, r->o->b.tenant, r->sandbox, &call, on_sent, r);
}

/* The first of those that are left. */
static void next_archive(struct build_run *r)
{
    char hash[CORE_BUILD_HASH_MAX + 1];
    size_t n = strcspn(r->copy_left, ",");
    int fd;

    (void)snprintf(hash, sizeof(hash), "%.*s", (int)n,
                   n <= CORE_BUILD_HASH_MAX ? r->copy_left : "");
    r->copy_left += n + (r->copy_left[n] == ',');
    fd = build_file_open(r->core, r->o->b.tenant, hash);
    r->copy_fd = fd >= 0 ? fd : -1;
    if (fd >= 0) {
        next_piece(r);
        return;
    }
    build_run_fail(r, "COPY %.200s: its files were not sent, or are gone by now: build again",
                   r->spec.steps[r->at].words[0]);
    build_command_later(r, r->step_done);
}

void build_copy_begin(struct build_run *r, void (*done)(struct build_run *r))
{
    const struct build_step *s = &r->spec.steps[r->at];

    r->step_done = done;
    r->copy_piece = 0;
    r->copy_left = s->files ? s->files : "";
    next_archive(r);
}
