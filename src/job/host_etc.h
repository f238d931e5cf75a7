#pragma once
/* The generated parts of template `host`: tables only. Paths are relative to its root. */

#include <stddef.h>
#include <sys/types.h>

struct host_etc_text {
    const char *path;
    mode_t mode; /* unused for links, whose text is the target */
    const char *text;
};

extern const char *const host_etc_dirs[];
extern const struct host_etc_text host_etc_links[];
extern const struct host_etc_text host_etc_texts[];

/* Copied from the same place of the host, as far as all users may read it there. */
extern const char *const host_etc_copies[];

extern const size_t host_etc_n_dirs, host_etc_n_links, host_etc_n_texts, host_etc_n_copies;
