#pragma once
/* What a client says a template is: {"fromTemplate" or "fromImage", "startCmd", "readyCmd",
 * "force", "steps": [{"type", "args", "filesHash", "force"}]}. Read and checked whole before
 * anything is done. Pure. */

#include "core/build.h"

enum build_op { BUILD_OP_RUN, BUILD_OP_ENV, BUILD_OP_WORKDIR, BUILD_OP_USER, BUILD_OP_COPY };

/* In the words of clients. */
const char *build_op_name(enum build_op op);

struct build_step {
    enum build_op op;
    size_t n;            /* of args */
    const char *args[4]; /* borrowed; of ENV: in `words` alone */
    const json_t *words;
    const char *files; /* of COPY: its archive's hash */
    bool force;
};

struct build_spec {
    json_t *json;                    /* a copy: what the others point into */
    const char *from;                /* a template's name, or what an image is called */
    bool image;                      /* that, where no template has the name */
    const char *username, *password; /* for its registry; NULL: none */
    const char *start, *ready;       /* NULL: none */
    size_t n;
    struct build_step *steps;
};

/* ERR_INVALID, with the number of the step. */
enum err_code build_spec_read(const json_t *json, struct build_spec *out, struct err *e);
void build_spec_free(struct build_spec *s);

/* A step in one short line, for the log. */
void build_spec_show(const struct build_step *s, char *out, size_t size);
