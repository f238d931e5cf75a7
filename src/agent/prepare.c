/* Two things of a cay-init cannot be in an image: connections, whose other ends are not of the
 * sandbox, and files of the host's. Their numbers stay taken by /dev/null, so that all code that
 * names them (AGENT_LISTENER_FD, agent_spawn's) finds the files of a restore where those of the
 * start were. */

#include "agent/prepare.h"

#include "agent/common/logs.h"
#include "agent/netlink.h"
#include "agent/process/proc.h"
#include "base/test_bypass.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

enum err_code prepare_check(const struct agent *a, struct err *e)
{
    if (!a->go_on || a->serves_volume)
        return err_set(e, ERR_CONFLICT, "it is no sandbox of its own");
    if (a->filters_max)
        return err_set(e, ERR_CONFLICT,
                       "its programs may have system call filters of their own "
                       "(seccompFilters), which cannot be kept");
    if (a->hooks)
        return err_set(e, ERR_UNAVAILABLE, "its hooks are being run");
    for (const struct proc *p = a->processes->first; p; p = p->next)
        if (p->launch)
            return err_set(e, ERR_UNAVAILABLE, "a program is being started");
    return ERR_OK;
}

/* --- the files -------------------------------------------------------------------------------- */

static int each_file(const struct agent *a, int at[static AGENT_GO_ON_FDS_MAX])
{
    int n = 0;

    if (a->netlink)
        at[n++] = AGENT_LISTENER_FD;
    for (size_t i = 0; i < a->spawn.cgroup_fd_count; i++)
        at[n++] = a->spawn.cgroup_fds[i];
    if (a->oom_fd > 0)
        at[n++] = a->oom_fd;
    return n;
}

int prepare_give_up(struct agent *a)
{
    int at[AGENT_GO_ON_FDS_MAX], n = each_file(a, at);
    CLEANUP_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return -errno;
    netlink_rest(a);
    for (int i = 0; i < n; i++)
        if (dup3(null, at[i], O_CLOEXEC) < 0)
            return -errno;
    return prctl(PR_SET_DUMPABLE, 1L, 0L, 0L, 0L) < 0 ? -errno : 0;
}

static int put(int fd, int at)
{
    return dup3(fd, at, O_CLOEXEC) < 0 ? -errno : 0;
}

int prepare_take_back(struct agent *a, const struct agent_go_on *m, const int *fds)
{
    int rc = prctl(PR_SET_DUMPABLE, TEST_BYPASS(UNDUMPABLE) ? 1L : 0L, 0L, 0L, 0L) < 0 ? -errno : 0;

    fds += m->kind == AGENT_GO_ON_NEW;
    if (m->cgroup_fds != a->spawn.cgroup_fd_count)
        return -EPROTO;
    if (rc == 0 && m->listener && a->netlink)
        rc = put(*fds, AGENT_LISTENER_FD);
    fds += m->listener;
    for (uint32_t i = 0; rc == 0 && i < m->cgroup_fds; i++)
        rc = put(*fds++, a->spawn.cgroup_fds[i]);
    if (rc == 0 && m->oom && a->oom_fd > 0)
        rc = put(*fds, a->oom_fd);
    return rc == 0 && m->listener ? netlink_go_on(a) : rc;
}

/* --- for cayd --------------------------------------------------------------------------------- */

static void on_not_taken(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    logs_add(a, "warn", "memory_not_kept", 0, "it was prepared to be dumped, and was not");
    prepare_end(a);
}

void prepare_post(struct http_exchange *x, struct agent *a)
{
    struct err e;

    if (prepare_check(a, &e) != ERR_OK) {
        http_respond_error(x, e.code == ERR_UNAVAILABLE ? 503 : 409, "%s", e.text);
        return;
    }
    a->prepared = true;
    a->not_taken.data = a;
    uv_timer_start(&a->not_taken, on_not_taken, PREPARE_MS, 0);
    http_respond(x, 204, NULL, 0, NULL, 0);
}

void prepare_end(struct agent *a)
{
    uv_timer_stop(&a->not_taken);
    a->prepared = false;
}

void prepare_go_on(struct http_exchange *x, struct agent *a)
{
    if (a->prepared)
        prepare_end(a);
    http_respond(x, 204, NULL, 0, NULL, 0);
}
