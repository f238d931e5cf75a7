#pragma once
/* Functions that commands use of each other. */

#include "cli/api.h"

/* cmd_create.c: creates a sandbox by the options of `create` (--ttl, --env, --metadata) into id.
 * Says on standard error when another template was taken than asked for. */
enum err_code sandbox_create(const struct cli *c, struct api *a, const char *template_name,
                             char *id, size_t size, struct err *e);
enum err_code sandbox_kill(struct api *a, const char *id, struct err *e);

/* cmd_policy.c: a policy by a file's name, "-" for standard input, or that of a preset. Checked. */
enum err_code policy_from(const char *given, json_t **out, struct err *e);
/* Says the "warnings" of an answer, where it has any, on standard error. */
void policy_say_warnings(const struct cli *c, const json_t *answer);

/* cmd_template.c: has the server make a template, and shows how that goes to its end. */
enum err_code template_build_follow(struct cli *c, struct api *a, const char *name, struct err *e);

/* May a template of one's own have this name? */
bool template_name_is_own(const char *name);

/* cmd_template_file.c: template build of the build file at path, a folder or a file. name NULL: the
 * file says it. The exit status. */
int template_build_file(struct cli *c, const char *name, const char *path);

/* Is there a build file of this name that ships with cay? Its folder goes to path. */
bool template_shipped(const char *name, char *path, size_t size);

/* cmd_exec.c: runs argv in a sandbox by the options of `exec` and returns the exit status. */
int exec_in(const struct cli *c, struct api *a, const char *id, char **argv, int argc);

/* cmd_exec_policy.c: the same for one command with the policy that --policy names; process as the
 * agent is told. timeout_ms 0: none was given. */
int exec_with_policy(const struct cli *c, struct api *a, const struct api_sandbox *s,
                     const json_t *process, uint64_t timeout_ms, struct err *e);

/* show.c. A whole command: GETs path and prints the answer, as JSON where that is asked for, else
 * by print. The exit status. */
int show_answer(struct cli *c, const char *path, void (*print)(const json_t *answer));

/* The same of an array, in pages or as one answer: with --quiet the text by that key of each. */
int show_list(struct cli *c, const char *path, bool paged, const char *key,
              void (*print)(const json_t *all));

/* An answer that tells of a thing that was made: as JSON where that is asked for, else the text by
 * that key. */
void show_made(const struct cli *c, json_t *made, const char *key);

/* As show_answer, of a POST of body, which it takes over. */
int show_posted(struct cli *c, const char *path, json_t *body,
                void (*print)(const struct cli *c, const json_t *answer));

/* "3m 20s", "2h 5m", "1d 3h" of a number of seconds. */
void table_duration(int64_t seconds, char *out, size_t size);
/* "512 MiB", "1.5 GiB". */
void table_bytes(uint64_t bytes, char *out, size_t size);

/* table.c: columns as wide as their widest cell, written at once. Cells are copied; control
 * characters in them become '?'. */
struct table;
struct table *table_new(const char *const *heads, size_t columns);
void table_cell(struct table *t, const char *fmt, ...) PRINTF(2, 3);

/* A cell of texts; more than fit a line are cut. none: where there are none. */
void table_cell_list(struct table *t, const json_t *list, const char *between, const char *none);
void table_print(struct table *t, FILE *out);
void table_free(struct table *t);

/* progress.c: a bar on standard error when that is a terminal; nothing otherwise. */
struct progress {
    const char *name;
    uint64_t total_bytes; /* 0: unknown */
    uint64_t begun_us, shown_us;
    bool on;
};
void progress_begin(struct progress *p, const struct cli *c, const char *name,
                    uint64_t total_bytes);
void progress_step(struct progress *p, uint64_t done_bytes);
void progress_end(struct progress *p, uint64_t done_bytes);
