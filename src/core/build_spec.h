#pragma once
/* The typed description of a template to build, of no dialect. A dialect's reader fills it and
 * checks it by its own rules and texts (api/e2b_build_spec.h); core holds and frees it. Pure. */

#include "core/build.h"

enum build_op {
    BUILD_OP_RUN,
    BUILD_OP_ENV,
    BUILD_OP_WORKDIR,
    BUILD_OP_USER,
    BUILD_OP_COPY,
    BUILD_OP_COUNT
};

/* As the log shows it. */
const char *build_op_name(enum build_op op);

/* How many words a step has. */
void build_op_words(enum build_op op, size_t *least, size_t *most);

/* | step | words |
 * |---|---|
 * | RUN | command, and perhaps the user |
 * | ENV | name, value, name, value, ... |
 * | WORKDIR | folder |
 * | USER | name |
 * | COPY | source, target, and perhaps owner ("": the user), mode ("": as it is) | */
struct build_step {
    enum build_op op;
    size_t n;
    const char **words; /* the array is the spec's own, of malloc */
    const char *files;  /* of COPY: its archives' hashes, "a,b"; NULL: none */
    bool force;         /* it runs, whatever was kept of it */
};

struct build_text;

/* Its texts are constants, or copies of its own (build_spec_text). */
struct build_spec {
    struct build_text *texts;
    const char *from;                /* a template's name, or what an image is called */
    bool image;                      /* that, where no template has the name */
    const char *username, *password; /* for its registry; NULL: none */
    const char *user, *cwd;          /* of the first step, where what it begins with says nothing;
                                        NULL: "user", in its home */
    const char *start, *ready;       /* NULL: none */
    int ready_port;                  /* that the second waits for, and each create too; 0: none */
    size_t n;
    struct build_step *steps; /* of malloc */
};

/* A copy that lives as long as the spec. NULL: memory is out. */
const char *build_spec_text(struct build_spec *s, const char *text);

/* ERR_INVALID: it is not what core's steps rely on, which is a reader's mistake. */
enum err_code build_spec_check(const struct build_spec *s, struct err *e);

/* Its contents are overwritten: passwords and variables are among them. */
void build_spec_free(struct build_spec *s);

/* A step in one short line, for the log. */
void build_spec_show(const struct build_step *s, char *out, size_t size);

/* {"auths": {HOST: {"auth": base64 of USER:PASSWORD}}}, as docker and skopeo keep them. NULL: there
 * is no user, or memory is out. */
char *build_spec_auth(const struct build_spec *s, const char *host);
