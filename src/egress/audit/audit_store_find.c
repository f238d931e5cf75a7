/* The files of the logs that an earlier process has left: found by their names, and counted. */

#include "egress/audit/audit_store_internal.h"

#include "base/util.h"
#include "egress/audit/audit_name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* PREFIX[.TENANT].log[.NUMBER] -> tenant and number. */
static bool read_name(const struct audit_store *s, const char *file,
                      char tenant[static AUDIT_NAME_SIZE], uint32_t *number)
{
    size_t prefix = strlen(s->prefix);
    const char *end = strstr(file, AUDIT_SUFFIX), *rest;
    int used = 0;

    if (strncmp(file, s->prefix, prefix) != 0 || !end || end < file + prefix)
        return false;
    rest = end + strlen(AUDIT_SUFFIX);
    *number = AUDIT_NEWEST;
    if (*rest && (sscanf(rest, ".%8" SCNu32 "%n", number, &used) != 1 || used != 9 || rest[used]))
        return false;
    file += prefix;
    if (file < end && *file++ != '.')
        return false;
    return audit_name_read_tenant(file, (size_t)(end - file), tenant, AUDIT_NAME_SIZE);
}

static void count_file(struct audit_store *s, struct audit_log *l, uint32_t number, uint64_t bytes)
{
    l->bytes += bytes;
    s->bytes += bytes;
    if (number == AUDIT_NEWEST) {
        l->file_bytes = bytes;
        return;
    }
    if (l->first == l->end) {
        l->first = number;
        l->end = number + 1;
    }
    l->first = MIN(l->first, number);
    l->end = MAX(l->end, number + 1);
}

int audit_store_find_files(struct audit_store *s,
                           struct audit_log *(*log_of)(struct audit_store *s, const char *tenant))
{
    int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc;

    if (!d)
        return -errno;
    while (errno = 0, (entry = readdir(d))) {
        char tenant[AUDIT_NAME_SIZE];
        uint32_t number;
        struct audit_log *l = read_name(s, entry->d_name, tenant, &number) ? log_of(s, tenant)
                                                                           : NULL;
        struct stat st;

        if (l && fstatat(s->dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            count_file(s, l, number, (uint64_t)st.st_size);
    }
    rc = -errno; /* of readdir: a log that is not seen would be begun anew */
    closedir(d);
    return rc;
}
