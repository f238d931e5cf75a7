#pragma once
/* A build file: which steps make a template. Its language is a part of Dockerfile's; an instruction
 * outside of it is refused with its line and not passed over. The command line reads those of `cay
 * template build`, api those that Daytona's clients send (BUILD_FILE_OF_IMAGE).
 *
 *   FROM NAME                     a template or snapshot; first, and once
 *   RUN COMMAND | ["a", "b"]      a command in the sandbox; the first form is for /bin/sh -c
 *   COPY [--chown=USER[:GROUP]] [--chmod=MODE] SOURCE... TARGET
 *   ENV NAME=VALUE...             of the following steps, and of every process of the template
 *   WORKDIR DIR, USER NAME        of the following steps, and of CMD
 *   EXPOSE PORT                   CMD listens on it: a create waits until it does
 *   CMD COMMAND | ["a", "b"]      is started in each sandbox of the template
 *   LABEL cay.name=NAME           the template's name where none is given
 *   LABEL cay.ready=COMMAND       succeeds once CMD's program may be kept with its memory; other
 *                                 labels say nothing here
 *
 * Lines go on after a backslash; # begins a comment line. In ENV, WORKDIR and the target of COPY,
 * $NAME and ${NAME} are variables of earlier ENVs. Parsing needs no server and no files: all that
 * can be known to be wrong is said before anything is done.
 *
 * In BUILD_FILE_OF_IMAGE FROM may name an image ("python:3.12-slim"), sources of COPY may be
 * patterns, and there is ENTRYPOINT COMMAND | ["a", "b"], before CMD in what is started. */

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

#define BUILD_FILE_MAX_BYTES  (256u * 1024u)
#define BUILD_FILE_VALUES_MAX (256u * 1024u) /* bytes of one ENV's values, variables replaced */
#define BUILD_STEPS_MAX       512u
#define BUILD_WORDS_MAX       256u /* of one instruction */
#define BUILD_NAME_MAX        100u /* bytes of a template's name */
#define BUILD_READY_MAX       1000u

enum build_file_op {
    BUILD_FROM,
    BUILD_RUN,
    BUILD_COPY,
    BUILD_ENV,
    BUILD_WORKDIR,
    BUILD_USER,
    BUILD_EXPOSE,
    BUILD_CMD,
    BUILD_LABEL,
    BUILD_ENTRYPOINT
};

enum build_file_form { BUILD_FILE_OF_TEMPLATE, BUILD_FILE_OF_IMAGE };

struct build_file_step {
    enum build_file_op op;
    unsigned line;
    char *text;    /* of the instruction without its word, in one line; for people too */
    json_t *words; /* of the JSON form of RUN, CMD, ENTRYPOINT and COPY; COPY always; else NULL */
    char *owner;   /* COPY: of --chown; else NULL */
    char mode[8];  /* COPY: of --chmod, digits; else "" */
};

struct build_file {
    enum build_file_form form;
    struct build_file_step *steps; /* FROM is the first */
    size_t count;
    char name[BUILD_NAME_MAX + 1];   /* of LABEL cay.name; "" */
    char ready[BUILD_READY_MAX + 1]; /* of LABEL cay.ready; "" */
};

/* Reads text of len bytes. Free with build_file_free, also after an error. */
enum err_code build_file_parse(const char *text, size_t len, enum build_file_form form,
                               struct build_file *out, struct err *e);
void build_file_free(struct build_file *f);

/* "RUN", "COPY", … */
const char *build_file_op_name(enum build_file_op op);

/* Adds what ENV's text says to the object of strings set; the variables that it uses are env's
 * (NULL: there are none). */
enum err_code build_file_env(const char *text, const json_t *env, json_t *set, struct err *e);

/* The same, but a value is what a shell reads within double quotes, with its variables left for it
 * to replace. */
enum err_code build_file_env_for_shell(const char *text, json_t *set, struct err *e);

/* text with its variables replaced: into out, to which it is appended. */
enum err_code build_file_expand(const char *text, const json_t *env, struct buf *out,
                                struct err *e);

/* A command for /bin/sh: first, then words as they are. NULL when memory is out; the caller frees
 * it. */
char *build_file_quote(const char *first, const json_t *words);
