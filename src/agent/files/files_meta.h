#pragma once
/* Metadata that a client keeps with a file: X-Metadata-<key> headers of an upload become extended
 * attributes user.e2b.<key>, which EntryInfo shows (fs_entry.h). */

#include "agent/common/agent.h"

#define FILES_META_KEYS_MAX HTTP_MAX_HEADERS
#define FILES_META_KEY_MAX  246u /* the kernel's 255 less the prefix */
/* of all names (with prefix) and values: what a file system holds */
#define FILES_META_MAX 4096u

struct files_meta {
    size_t count;
    struct files_meta_pair {
        char *name; /* with its prefix, in lower case; malloc'd */
        char *value;
    } pairs[FILES_META_KEYS_MAX];
};

/* Collects and checks the headers. On failure (ERR_INVALID) out is to be freed all the same. */
enum err_code files_meta_read(const struct http_head *h, struct files_meta *out, struct err *e);
void files_meta_free(struct files_meta *m);

/* Makes m the file's whole metadata: others are removed. 0, also where the file system keeps none;
 * or -errno. */
int files_meta_write(int fd, const struct files_meta *m) WARN_UNUSED;
