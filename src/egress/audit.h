#pragma once
/* The log of decisions: STATE/audit-SHARD.log, one JSON object in each line, each with the SHA-256 of
 * the line before it ("prev"), so that a line that was changed, taken out or put in between is found
 * (audit_verify). Lines are only ever appended. At audit_size the file becomes audit-SHARD.log.1 (and
 * .1 becomes .2, up to audit_files), and the chain goes on: the new file's first line has the hash of
 * the old one's last.
 *
 * One line for each decision when it is made, so that nothing that was let through is missing if the
 * program is killed; one more at the end of what was let through, with bytes and duration. Lines
 * leave in one write a turn of the loop; fdatasync by a timer, on libuv's helper thread. A log that
 * cannot be written is reported, and the program ends: nothing passes unrecorded. */

#include "egress/egress.h"

struct audit;

enum audit_event { AUDIT_CONNECTION, AUDIT_REQUEST, AUDIT_END };

struct audit_record {
    enum audit_event event;
    const struct sandbox *sandbox;
    const struct flow *flow;
    const struct target *target; /* NULL: the flow's */
    bool allowed;
    const char *rule; /* or preset, default; or what else refused: "sni", "limit" */
    enum policy_source source;
    const char *reason;            /* of a refusal; may be NULL */
    const char *method, *path;     /* of a request; the path is cut at its '?' */
    const char *credential;        /* name of what was put on it, or NULL */
    uint64_t up_bytes, down_bytes; /* with AUDIT_END */
    uint64_t duration_ms;
};

#define AUDIT_LINE_MAX 4096u

enum err_code audit_open(struct egress *eg, struct audit **out, struct err *e);
void audit_free(struct audit *a);
void audit_record(struct audit *a, const struct audit_record *r);

/* Writes what this turn has decided so far. */
void audit_flush(struct audit *a);

/* Calls cb with each new line (without its newline) from now on. Its id, or 0
 * when there are too many. */
uint64_t audit_follow(struct audit *a, void (*cb)(void *arg, const char *line, size_t n),
                      void *arg);
void audit_unfollow(struct audit *a, uint64_t id);
