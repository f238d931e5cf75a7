/* The sandbox's use of resources. The kernel's totals in /proc are the machine's, not the
 * sandbox's, so processor time and memory are added up over its processes; where /init told limits,
 * they are the totals. cayd knows more exact figures from the cgroup; these are for programs
 * inside. */

#include "agent/common/agent.h"

#include "agent/common/procfs.h"
#include "base/clock.h"

#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct usage {
    uint64_t cpu_ticks;
    uint64_t rss_pages;
};

struct cpu_sample {
    uint64_t at_ms, ticks;
};

static bool add_process(const struct procfs_stat *s, void *arg)
{
    struct usage *u = arg;

    u->cpu_ticks += s->cpu_ticks;
    u->rss_pages += s->rss_pages;
    return true;
}

static uint32_t cpu_count(const struct agent *a)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    if (a->limits.cpu_milli > 0)
        return (a->limits.cpu_milli + 999) / 1000;
    return n > 0 ? (uint32_t)n : 1;
}

/* Percent of all processors since the last call. The sum falls when a child is not reaped. */
static double cpu_used_pct(uint64_t ticks, uint32_t cpus)
{
    static struct cpu_sample last;
    struct cpu_sample now = {clock_mono_ms(), ticks};
    double pct = 0;

    if (last.at_ms != 0 && now.at_ms > last.at_ms && now.ticks > last.ticks)
        pct = (double)(now.ticks - last.ticks) / (double)sysconf(_SC_CLK_TCK) * 1000.0 /
              (double)(now.at_ms - last.at_ms) * 100.0 / cpus;
    last = now;
    return (double)(int64_t)(MIN(pct, 100.0) * 100 + 0.5) / 100;
}

struct memory {
    uint64_t total, used, cache;
};

static struct memory get_memory(const struct agent *a, const struct usage *u)
{
    struct memory m;

    if (a->limits.memory_bytes > 0) {
        m.total = a->limits.memory_bytes;
        m.used = MIN(u->rss_pages * (uint64_t)sysconf(_SC_PAGESIZE), m.total);
        m.cache = 0;
        return m;
    }
    m.total = procfs_meminfo_bytes("MemTotal");
    m.used = m.total - MIN(procfs_meminfo_bytes("MemAvailable"), m.total);
    m.cache = procfs_meminfo_bytes("Cached");
    return m;
}

static void get_disk(const struct agent *a, uint64_t *used, uint64_t *total)
{
    struct statvfs st;

    *used = *total = 0;
    if (statvfs("/", &st) == 0) {
        *total = (uint64_t)st.f_blocks * st.f_frsize;
        *used = *total - MIN((uint64_t)st.f_bavail * st.f_frsize, *total);
    }
    if (a->limits.disk_bytes > 0)
        *total = a->limits.disk_bytes;
}

void metrics_get(struct http_exchange *x, struct agent *a)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/json"},
        {"Cache-Control", "no-store"},
    };
    struct usage u = {0};
    struct memory m;
    uint64_t disk_used, disk_total;
    uint32_t cpus = cpu_count(a);
    CLEANUP_FREE char *body = NULL;
    json_t *root;

    (void)procfs_each(add_process, &u);
    m = get_memory(a, &u);
    get_disk(a, &disk_used, &disk_total);
    root = json_pack("{sI si sf sI sI sI sI sI sI sI}", "ts", (json_int_t)(clock_real_ms() / 1000),
                     "cpu_count", (int)cpus, "cpu_used_pct", cpu_used_pct(u.cpu_ticks, cpus),
                     "mem_total", (json_int_t)m.total, "mem_used", (json_int_t)m.used, "mem_cache",
                     (json_int_t)m.cache, "mem_total_mib", (json_int_t)(m.total >> 20),
                     "mem_used_mib", (json_int_t)(m.used >> 20), "disk_used", (json_int_t)disk_used,
                     "disk_total", (json_int_t)disk_total);
    body = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(root);
    if (body)
        http_respond(x, 200, headers, ARRAY_SIZE(headers), body, strlen(body));
    else
        http_respond_error(x, 500, "out of memory");
}
