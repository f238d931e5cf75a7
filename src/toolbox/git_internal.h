#pragma once
/* Shared by the files that run git: the state of a call, its request's fields, and its script. */

#include "base/buf.h"
#include "http/json.h"
#include "toolbox/call.h"
#include "toolbox/git.h"

#include <jansson.h>

struct git {
    struct toolbox_call *call;
    json_t *envs;
    char path[TOOLBOX_PATH_SIZE];
    int status; /* of a good answer that has no body */
    int (*read)(const char *text, size_t len, struct buf *b); /* NULL: no body */
    bool has_files; /* of the request, so that one that is not there makes it a bad one */
    char script[4096];
};

/* The state of a call, which it belongs to. NULL: the call was answered. */
struct git *git_new(struct toolbox_call *c);

/* Each of these: false, and the call was answered. */

/* Text of the body; an optional one is "" when absent. */
bool git_text(struct git *g, const char *name, enum json_need need, size_t max, const char **out);
/* A branch, a commit or a remote: what git could take for an option is none. */
bool git_name_of(struct git *g, const char *field, enum json_need need, const char **out);
bool git_flag(struct git *g, const char *name, bool *out);
bool git_path_of_body(struct git *g);
bool git_path_of_query(struct git *g);
/* "files" of the body, for `files` of the script, which prints each with a NUL behind it. */
bool git_files(struct git *g);
/* A variable of the script. */
bool git_set_env(struct git *g, const char *name, const char *value);
/* "username" and "password" of the body, as CAY_GIT_USERNAME and CAY_GIT_PASSWORD of the script. */
bool git_credentials(struct git *g, enum json_need need);

/* Runs lines as sh, behind those that go to the repository unless it is yet to be made, and answers
 * the call. args are $1 and so on, at most six, and end with NULL; $p is the path. */
void git_begin(struct git *g, bool repository, const char *lines, const char *const *args);
