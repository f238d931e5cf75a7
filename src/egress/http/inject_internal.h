#pragma once
/* A request's plan in the making: inject.c (what a request gets) and inject_placeholder.c
 * (placeholders in its head) write it by inject_plan.c. */

#include "egress/credential/placeholder.h"
#include "egress/http/inject.h"

#define INJECT_REMOVE_MAX (HTTP_MAX_HEADERS + CREDENTIAL_HEADERS_MAX + 16)
#define INJECT_TEXT_MAX   ((size_t)2 * REWRITE_BODY_MAX)

/* A request while it is decided about. */
struct plan {
    const struct inject_request *r;
    const struct http_head *head;
    struct arena *arena;
    const char *remove[INJECT_REMOVE_MAX + 1];
    size_t removed;
    struct rewrite_job *job;
    struct redact *redact;
    const struct credential *sign;  /* aws-sigv4, at the end */
    const struct credential *named; /* by the policy, where it is a placeholder's */
    uint64_t put;                   /* bit i: the credential i is put on it */
    uint64_t bound; /* bit i: the credential i may be put on it. Asked once, not for each of the
                       thousands of placeholders that a head has room for */
    struct err *e;
};

/* -- inject_plan.c ----------------------------------------------------------------------------- */

/* Errors go to p->e, and are what is returned. */
enum err_code inject_no_memory(struct plan *p);
enum err_code inject_take_rc(struct plan *p, int rc); /* 0 or more: ERR_OK */

/* May this credential be put on this request? The first says why not, the second makes it the
 * error. */
enum policy_fit inject_fit_of(const struct plan *p, const struct credential *c);
enum err_code inject_check_bound(struct plan *p, const struct credential *c);

/* It is put on this request. Is it? */
void inject_note_put(struct plan *p, const struct credential *c);
bool inject_is_put(const struct plan *p, const struct credential *c);

/* Does the policy name it for this request? */
bool inject_is_named(const struct plan *p, const struct credential *c);

/* arg: the plan. Is that header of the client's left out? */
bool inject_is_removed(const void *arg, const char *name);

/* That header of the client's is left out; name lives as long as the plan. */
enum err_code inject_leave_out(struct plan *p, const char *name);

/* Replaces all of the client's of that name. */
enum err_code inject_set_header(struct plan *p, const char *name, const char *fmt, ...)
    PRINTF(3, 4);

/* -- inject_placeholder.c ---------------------------------------------------------------------- */

/* Where a text comes from whose placeholders are replaced. */
enum inject_where {
    INJECT_OWN, /* the owner's: a value of kind headers */
    INJECT_HEADER /* a header of the client's: `header` */,
    INJECT_TARGET
};

struct inject_text {
    const char *text;
    size_t n;
    enum placeholder_escape how;
    enum inject_where where;
    const char *header;
    bool in_basic; /* the value as it is, however the placeholder is spelled: base64 of an escaped
                      one is no form that answers are searched for, and no server's key */
};

/* Appends t with its placeholders replaced, all of which must be allowed to be. */
enum err_code inject_substitute(struct plan *p, const struct inject_text *t, struct buf *out);
enum err_code inject_replace_in_headers(struct plan *p);
enum err_code inject_replace_in_target(struct plan *p);
