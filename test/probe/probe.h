#pragma once
/* The probe: one static program that is put into a sandbox and tries to get out, a case per
 * command.
 *
 * Each case makes one attempt and says what happened. It never harms the host when it succeeds: it
 * proves the way (a descriptor, a value, a successful call) and undoes it.
 * Exit status: 0 refused, 1 the way is open, 2 used wrongly, 77 the case does not apply here (its
 * line says why). The same program on the host, as root, is the positive control of those cases
 * whose way is open to root there. */

#include "base/util.h"

#include <sys/types.h>

enum verdict { REFUSED = 0, OPEN = 1, NOT_APPLICABLE = 77 };

struct finding {
    enum verdict verdict;
    char why[200]; /* what the kernel said, or what was reached */
};

struct probe_case {
    const char *name;  /* class.what, for example kernel.io_uring */
    const char *about; /* one sentence: the way out that is tried */
    void (*run)(struct finding *f);
    int open_on_host; /* 1: the host's root can do it, so the host run is the positive control */
};

/* Tables, one per file, each ended by an entry whose name is NULL. */
extern const struct probe_case probe_kernel_cases[];
extern const struct probe_case probe_proc_cases[];
extern const struct probe_case probe_namespace_cases[];
extern const struct probe_case probe_identity_cases[];
extern const struct probe_case probe_network_cases[];
extern const struct probe_case probe_calls_cases[];
extern const struct probe_case probe_filters_cases[];
extern const struct probe_case probe_pools_cases[];
extern const struct probe_case probe_init_cases[];
extern const struct probe_case probe_files_cases[];
extern const struct probe_case probe_shared_cases[];

/* PID 1, or the victim that stands for it outside of a sandbox (CAY_PROBE_PID). */
pid_t probe_target(void);

/* A new session with a terminal of its own: the terminal's descriptor, or -1. */
int probe_terminal(void);

/* True, with a verdict, where PID 1 is the machine's own, or the probe itself: what would hurt it is not
 * tried then. */
int probe_spared(struct finding *f);

void found_refused(struct finding *f, const char *fmt, ...) PRINTF(2, 3);
void found_open(struct finding *f, const char *fmt, ...) PRINTF(2, 3);
void found_none(struct finding *f, const char *fmt, ...) PRINTF(2, 3);

/* result >= 0 is open ("name succeeded"), else refused with errno's text. The descriptor that the
 * call may have returned stays open: the process ends right after. */
void found_call(struct finding *f, const char *name, long result);

/* The same for a call whose arguments make it fail harmlessly once it looks at them: any answer but a
 * refusal means that the way to it is open. */
void found_reached(struct finding *f, const char *name, long result);
