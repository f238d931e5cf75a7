#include "sys/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

/* The arguments are wrong in a way that each call checks first (bad flags, no descriptor, no size),
 * or, for those that check the right to mount first, after that. */
static const struct {
    const char *name;
    long number;
    long arguments[5];
} calls[] = {
    {"clone3", SYS_clone3, {0, 0}},
    {"close_range", SYS_close_range, {1, 0, 0}},
    {"fsconfig", SYS_fsconfig, {-1, 0, 0, 0, 0}},
    {"fsmount", SYS_fsmount, {-1, -1, 0}},
    {"fsopen", SYS_fsopen, {0, -1}},
    {"memfd_create", SYS_memfd_create, {0, -1}},
    {"mount_setattr", SYS_mount_setattr, {-1, 0, -1, 0, 0}},
    {"move_mount", SYS_move_mount, {-1, 0, -1, 0, -1}},
    {"open_tree", SYS_open_tree, {-1, 0, -1}},
    {"openat2", SYS_openat2, {-1, 0, 0, 0}},
    {"pidfd_open", SYS_pidfd_open, {0, -1}},
    {"pidfd_send_signal", SYS_pidfd_send_signal, {-1, 0, 0, -1}},
};

static int try_call(size_t i)
{
    const long *a = calls[i].arguments;

    return syscall(calls[i].number, a[0], a[1], a[2], a[3], a[4]) < 0 ? errno : 0;
}

static void list_calls(int wanted, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(calls) && used < size; i++)
        if (try_call(i) == wanted)
            used += (size_t)snprintf(out + used, size - used, "%s%s(2)", used ? ", " : "",
                                     calls[i].name);
}

int kernel_check(char *why, size_t why_size)
{
    char names[192];
    struct utsname u = {0};

    list_calls(ENOSYS, names, sizeof(names));
    if (names[0]) {
        uname(&u);
        snprintf(why, why_size,
                 "this kernel (Linux %.40s) lacks %s, or something hides it; cay needs Linux %d.%d "
                 "or newer",
                 u.release, names, KERNEL_MAJOR, KERNEL_MINOR);
        return -ENOSYS;
    }
    list_calls(EPERM, names, sizeof(names));
    if (!names[0])
        return 0;
    snprintf(why, why_size,
             "not allowed here: %s; look at what runs this machine: a container's system call "
             "filter, or a lack of CAP_SYS_ADMIN",
             names);
    return -EPERM;
}
