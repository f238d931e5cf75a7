/* Two things of this host that the settings name beside the server's own: directories for
 * sandboxes, and the key of exported snapshots. A start passes without them, as they may come
 * later; cay-privd logs that too. */
#include "base/exchange_key.h"
#include "base/host_dir.h"
#include "base/settings.h"
#include "cli/doctor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* NULL, or why cay-privd would not give it: but that it is one of cay's own or of the kernel's. */
static const char *fault_of(const struct host_dir *d)
{
    const char *why = NULL;
    struct stat st;
    int fd = host_dir_open(d, &st, &why);

    if (fd < 0)
        return why;
    close(fd);
    return host_dir_unreadable(&st);
}

/* The first that is wrong. */
static void check_dirs(const struct settings *s, struct doctor_result *r)
{
    unsigned n = 0;
    struct host_dir d;

    for (size_t i = 0; i < HOST_DIRS_MAX; i++) {
        const char *why;

        if (!s->host_dirs[i] || host_dir_parse(s->host_dirs[i], &d))
            continue;
        n++;
        why = fault_of(&d);
        if (!why)
            continue;
        doctor_say(r, DOCTOR_LIMITED, "%.120s ([host] dir_%zu): %s", d.path, i + 1, why);
        return;
    }
    if (n > 0)
        doctor_say(r, DOCTOR_OK, "sandboxes may have %u of this host to read", n);
    else
        doctor_say(r, DOCTOR_SKIPPED, "sandboxes have none of this host's ([host] dir_1)");
}

static void check_key(const struct settings *s, struct doctor_result *r)
{
    const char *path = s->snapshots_exchange_key, *why;
    uint8_t key[EXCHANGE_KEY_BYTES];

    if (!path) {
        doctor_say(r, DOCTOR_SKIPPED,
                   "exported snapshots are for this server alone ([snapshots] exchange_key)");
        return;
    }
    if (geteuid() != 0) {
        doctor_say(r, DOCTOR_SKIPPED, "only root reads %.120s", path);
        return;
    }
    why = exchange_key_read(path, key);
    explicit_bzero(key, sizeof(key));
    if (why)
        doctor_say(r, DOCTOR_LIMITED,
                   "%.120s ([snapshots] exchange_key): %s: no snapshot is exported or imported",
                   path, why);
    else
        doctor_say(r, DOCTOR_OK, "snapshots go to and come from servers that have the same");
}

size_t doctor_files(const struct settings *s, struct doctor_result *out)
{
    memset(out, 0, DOCTOR_FILES * sizeof(*out));
    out[0].name = "host directories";
    check_dirs(s, &out[0]);
    out[1].name = "exchange key";
    check_key(s, &out[1]);
    return DOCTOR_FILES;
}
