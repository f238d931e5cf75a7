#pragma once
/* cay-job: one process for each job, in a control group of its own. */

#include <stdbool.h>
#include <stdint.h>

struct privd;
struct reply_to;

/* Makes the cgroup that jobs run below. 0 or -errno. */
int jobs_init(struct privd *p);

/* After jobs_stop. */
void jobs_free(struct privd *p);

/* kind as in contract/meta.h; who NULL: privd itself asks, done is told. done may be NULL. 0,
 * -EBUSY: one for the same template runs, or too many run. */
typedef void (*jobs_done_cb)(struct privd *p, uint32_t number, int status, const char *reason);
int jobs_start(struct privd *p, uint32_t kind, uint32_t template_number, const struct reply_to *to,
               jobs_done_cb done);

/* The job of that kind and number, if there is one, is killed: it ends soon, with -ECANCELED. */
void jobs_cancel(struct privd *p, uint32_t kind, uint32_t number);

/* A job builds, refreshes or removes that template now. */
bool jobs_work_on(const struct privd *p, uint32_t template_number);

/* Removes what replaced templates left, if anything, once no sandbox may stand on it any more. */
void jobs_sweep_if_idle(struct privd *p);

/* Kills all of them (they leave nothing that the next of its kind does not remove). */
void jobs_stop(struct privd *p);
