#pragma once
/* The lines that a job writes to its standard output: "P <percent> <text>" for its progress,
 * "E <errno> <text>" for its failure (contract/meta.h). */

#include "contract/meta.h"

#include <stdbool.h>
#include <stddef.h>

enum job_said_kind { JOB_SAID_OTHER, JOB_SAID_PROGRESS, JOB_SAID_FAILURE };

struct job_said {
    enum job_said_kind kind;
    unsigned percent; /* 0 to 100; of a failure 100 */
    int failure;      /* -errno; of any other number than 1 to 4095 -EIO */
    const char *text; /* printable ASCII; of JOB_SAID_OTHER the whole line */
};

/* A line that has begun. All zero: none. */
struct job_line {
    char text[JOB_LINE_MAX];
    size_t len;
    bool cut; /* the rest of this line is dropped */
};

/* on_said for each line that ends in these bytes; what it is given is valid until it returns. */
void job_line_take(struct job_line *l, const char *bytes, size_t n,
                   void (*on_said)(void *arg, const struct job_said *said), void *arg);
