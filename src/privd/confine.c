#include "privd/confine.h"

#include "base/io.h"
#include "base/log.h"
#include "base/test_bypass.h"
#include "base/util.h"
#include "sys/caps.h"
#include "sys/filter_host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define LOGIN_UID_UNSET "4294967295"

/* Every capability that privd and its children keep, and why. A sandbox's own user namespace gives
 * what its set-up code needs inside; this is about the host. */
static const struct {
    int cap;
    const char *why;
} kept[] = {
    {CAP_SYS_ADMIN, "mounts, namespaces, setns, loop device, btrfs subvolumes and quotas"},
    {CAP_SYS_CHROOT, "chroot of a build"},
    {CAP_SETUID, "ids of a slot before it makes its user namespace; id maps"},
    {CAP_SETGID, "the same"},
    {CAP_SETPCAP, "its own bounding set; secure bits while a slot's namespaces are made"},
    {CAP_SETFCAP, "file capabilities of a build"},
    {CAP_CHOWN, "owner of the channel's socket; of a template's files"},
    {CAP_DAC_OVERRIDE, "layers and templates that belong to sandboxes' ids"},
    {CAP_FOWNER, "modes and extended attributes of the same"},
    {CAP_FSETID, "set-id bits of a template's files (sudo)"},
    {CAP_MKNOD, "device nodes of each sandbox, and of a build"},
    {CAP_KILL, "ends processes of sandboxes' ids"},
    {CAP_SYS_PTRACE, "/proc/<pid>/ns and root of processes with other ids"},
};

/* Both what it has and what a program that it starts could gain. */
static int bound_caps(void)
{
    uint64_t keep = 0, effective, permitted;
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        keep |= CAPS_BIT(kept[i].cap);
    r = caps_bound(keep);
    if (r == 0)
        r = caps_get(&effective, &permitted);
    return r == 0 ? caps_set(effective & keep, permitted & keep, 0) : r;
}

/* Pooled slots hold descriptors; the hard limit may be as low as 20,000 and is not raised. */
static int raise_descriptors(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return -errno;
    l.rlim_cur = l.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &l) < 0 ? -errno : 0;
}

/* The login uid of the host's audit, for all that cay-privd starts and so for all that tenants run.
 * A process that has none may take on any, and keeps it: a tenant's program could have its acts
 * recorded as another user's. Set once, before anything runs; to change it then takes
 * CAP_AUDIT_CONTROL over the host. All have the same value, as each setting increments a number
 * that all can read (/proc/PID/sessionid). Where an administrator's login started cay-keep it is
 * set already. */
static int set_login_uid(void)
{
    char text[32];

    if (TEST_BYPASS(LOGIN_UID))
        return 0;
    if (io_read_text_at(AT_FDCWD, "/proc/self/loginuid", text, sizeof(text)) < 0)
        return 0; /* a kernel without audit */
    return strcmp(text, LOGIN_UID_UNSET) != 0
               ? 0
               : io_write_text_at(AT_FDCWD, "/proc/self/loginuid", "0");
}

int confine_process(void)
{
    int r;

    umask(077);
    r = raise_descriptors();
    if (r == 0)
        r = bound_caps();
    if (r == 0)
        r = set_login_uid();
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0) < 0)
        r = -errno;
    if (r == 0)
        r = filter_host_install(FILTER_HOST_DAEMON);
    if (r < 0)
        log_error("cannot give up privileges: %s", strerror(-r));
    return r;
}
