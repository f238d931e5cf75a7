/* cay-job: one piece of work on templates, started by privd as PID 1 of a pid namespace of its own,
 * with a mount namespace of its own. `cay-job --state-dir=DIR --template-inodes=N KIND NUMBER`;
 * contract/meta.h says which. */
#include "base/log.h"
#include "contract/meta.h"
#include "job/archive.h"
#include "job/bucket.h"
#include "job/exchange.h"
#include "job/import.h"
#include "job/kinds.h"
#include "job/layers.h"
#include "job/say.h"
#include "job/template.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define HOST 1u
#define BASE 2u

#define STATE_DIR "--state-dir="
#define INODES    "--template-inodes="

static int build(uint32_t number)
{
    if (number == HOST)
        return host_build(false);
    return number == BASE ? base_build() : import_build(number);
}

static int refresh(uint32_t number)
{
    return number == HOST ? host_build(true) : say_failure(EINVAL, "only host can be stale");
}

static int sweep(uint32_t number)
{
    int r = template_sweep();

    if (r == 0)
        r = layers_sweep();
    return r < 0 ? r : import_sweep();
}

enum network { NETWORK_NONE, NETWORK_OF_BASE, NETWORK };

static const struct {
    int (*run)(uint32_t number);
    enum network network;
} kinds[JOB_KIND_COUNT] = {
    [JOB_TEMPLATE_BUILD] = {build, NETWORK_OF_BASE},
    [JOB_TEMPLATE_REMOVE] = {layers_remove_template, NETWORK_NONE},
    [JOB_TEMPLATE_REFRESH] = {refresh, NETWORK_NONE},
    [JOB_SWEEP] = {sweep, NETWORK_NONE},
    [JOB_ARCHIVE] = {archive_build, NETWORK_NONE},
    [JOB_BUCKET_PUT] = {bucket_put, NETWORK},
    [JOB_BUCKET_GET] = {bucket_get, NETWORK},
    [JOB_BUCKET_SWEEP] = {bucket_sweep, NETWORK},
    [JOB_EXPORT] = {archive_export, NETWORK_NONE},
    [JOB_IMPORT] = {exchange_receive, NETWORK_NONE},
};

/* The namespaces are new already; what they hold is not. */
static int settle(bool needs_network)
{
    if (!needs_network && unshare(CLONE_NEWNET) < 0)
        return say_failure(errno, "no network namespace: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return say_failure(errno, "cannot make mounts private: %s", strerror(errno));
    /* A /proc of this pid namespace: programs of a build read it. */
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return say_failure(errno, "cannot mount /proc: %s", strerror(errno));
    return 0;
}

static int enter_templates(const char *state_dir)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/disk/templates", state_dir);
    return chdir(path) < 0 ? say_failure(errno, "cannot enter %s: %s", path, strerror(errno)) : 0;
}

static int parse_number(const char *text, unsigned long max, unsigned long *out)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end || n > max)
        return -EINVAL;
    *out = n;
    return 0;
}

struct arguments {
    const char *state_dir;
    unsigned long first_inode, kind, number;
};

static int parse(int argc, char **argv, struct arguments *out)
{
    if (argc != 5 || strncmp(argv[1], STATE_DIR "/", strlen(STATE_DIR "/")) != 0 ||
        strncmp(argv[2], INODES, strlen(INODES)) != 0)
        return -EINVAL;
    out->state_dir = argv[1] + strlen(STATE_DIR);
    if (parse_number(argv[2] + strlen(INODES), UINT32_MAX, &out->first_inode) < 0 ||
        parse_number(argv[3], JOB_KIND_COUNT - 1, &out->kind) < 0 ||
        parse_number(argv[4], META_TEMPLATES_MAX, &out->number) < 0)
        return -EINVAL;
    return kinds[out->kind].run ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
    struct arguments a = {.state_dir = NULL};
    enum network network;
    int r;

    log_init("cay-job", LOG_INFO);
    umask(022);
    if (parse(argc, argv, &a) < 0) {
        fprintf(stderr, "usage: cay-job " STATE_DIR "DIR " INODES
                        "N KIND NUMBER   (started by cay-privd)\n");
        return 2;
    }
    if (getpid() != 1) {
        fprintf(stderr, "cay-job: it must be started by cay-privd\n");
        return 2;
    }
    network = kinds[a.kind].network;
    r = settle(network == NETWORK || (network == NETWORK_OF_BASE && a.number == BASE));
    if (r == 0)
        r = enter_templates(a.state_dir);
    template_set_first_inode(a.first_inode);
    if (r == 0)
        r = kinds[a.kind].run((uint32_t)a.number);
    if (r < 0)
        return 1;
    say_progress(100, "done");
    return 0;
}
