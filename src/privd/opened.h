#pragma once
/* Memory images that stay opened, for the sandboxes that begin with the same one: of a template, a
 * snapshot or a fork. Opening one costs more than all else of such a start, and each would hold a
 * copy of it beside what is restored.
 *
 * It is memory of a tenant's in the host's, as while it is opened for one start: in a tmpfs that is
 * never swapped out, to which only a descriptor leads (runtime/opened_image.c). The disk has the
 * sealed file alone. It is given to a start on the same kept number, for the same owner and
 * template, and used only as long as the sealed file has not changed. It goes a minute after its
 * last use, with what is kept, for another one, where memory is short, and with privd. */

#include "privd/loop.h"
#include "runtime/runtime.h"

struct privd;

#define OPENED_MAX   4u                     /* at a time, of the whole server */
#define OPENED_BYTES (512ull * 1024 * 1024) /* of memory, all together */
#define OPENED_MS    60000                  /* after the last use */

struct opened_image {
    uint32_t kept; /* 0: none */
    struct runtime_image image;
    struct runtime_opened files;
    uint64_t used_ms;
};

struct opened_images {
    struct opened_image all[OPENED_MAX];
    struct loop_timer timer;
};

/* For a start on a copy of that number; RUNTIME_OPENED_NONE: it opens it by itself. The descriptor
 * stays here. */
struct runtime_opened opened_get(struct privd *p, uint32_t kept, const struct runtime_image *image);

/* Such a start has given it back; takes the descriptor. */
void opened_put(struct privd *p, uint32_t kept, const struct runtime_image *image,
                const struct runtime_opened *files);

/* The layer of that number goes. */
void opened_forget(struct privd *p, uint32_t kept);

void opened_forget_all(struct privd *p);

/* At that time of clock_mono_ms: those go whose time is over. By a timer. */
void opened_sweep(struct privd *p, uint64_t now_ms);
