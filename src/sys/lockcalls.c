#include "sys/lockcalls.h"

#include "base/io.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPUS_MAX 4096
#define EVENT    "events/filelock/posix_lock_inode/id"

/* A page of the kernel's and one of samples. */
#define PAGE        4096u
#define BUFFER_SIZE (2 * PAGE)

struct sample {
    struct perf_event_header header;
    uint32_t pid, tid;
};

/* The number of the tracepoint, from a tracefs that is attached nowhere. */
static int read_id(uint64_t *out)
{
    char text[32];
    CLEANUP_CLOSE int root = mnt_new("tracefs", NULL, 0);
    ssize_t n = root < 0 ? root : io_read_text_at(root, EVENT, text, sizeof(text));

    if (n < 0)
        return (int)n;
    *out = strtoull(text, NULL, 10);
    return *out > 0 ? 0 : -ENOENT;
}

static int open_one(uint64_t id, uint32_t period, int cpu, struct lockcalls_cpu *out)
{
    struct perf_event_attr a = {.type = PERF_TYPE_TRACEPOINT,
                                .size = sizeof(a),
                                .config = id,
                                .sample_period = period,
                                .sample_type = PERF_SAMPLE_TID,
                                .wakeup_events = 1};
    int fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

    if (fd < 0)
        return -errno;
    *out = (struct lockcalls_cpu){.fd = fd};
    return 0;
}

int lockcalls_begin(struct lockcalls *l)
{
    for (unsigned i = 0; i < l->n; i++) {
        void *page = mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, l->cpus[i].fd, 0);
        if (page == MAP_FAILED)
            return -errno;
        l->cpus[i].page = page;
    }
    return 0;
}

/* Those of the calling process's set of processors would be too few: all that are there. */
static int open_all(uint64_t id, uint32_t period, struct lockcalls *out)
{
    long n = sysconf(_SC_NPROCESSORS_CONF);

    out->cpus = calloc(n > 0 ? (size_t)MIN(n, CPUS_MAX) : 1, sizeof(*out->cpus));
    out->fds = calloc(n > 0 ? (size_t)MIN(n, CPUS_MAX) : 1, sizeof(*out->fds));
    if (!out->cpus || !out->fds)
        return -ENOMEM;
    for (int cpu = 0; cpu < n && cpu < CPUS_MAX; cpu++) {
        int rc = open_one(id, period, cpu, &out->cpus[out->n]);
        if (rc < 0 && rc != -ENODEV) /* one that is switched off */
            return rc;
        out->n += rc == 0;
    }
    return out->n > 0 ? 0 : -ENODEV;
}

int lockcalls_open(uint32_t period, struct lockcalls *out)
{
    struct lockcalls l = {0};
    uint64_t id = 0;
    int rc = read_id(&id);

    if (rc == 0)
        rc = open_all(id, period, &l);
    if (rc < 0)
        lockcalls_close(&l);
    else
        *out = l;
    return rc;
}

void lockcalls_close(struct lockcalls *l)
{
    for (unsigned i = 0; i < l->n; i++) {
        if (l->cpus[i].page)
            munmap(l->cpus[i].page, BUFFER_SIZE);
        close(l->cpus[i].fd);
    }
    free(l->cpus);
    free(l->fds);
    *l = (struct lockcalls){0};
}

int lockcalls_wait(struct lockcalls *l)
{
    int n;

    for (unsigned i = 0; i < l->n; i++)
        l->fds[i] = (struct pollfd){.fd = l->cpus[i].fd, .events = POLLIN};
    do
        n = poll(l->fds, l->n, -1);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* perf_event_open(2), "MMAP layout". Records are whole multiples of 8 bytes, this kind's a divisor
 * of the page. */
static size_t take_of(struct perf_event_mmap_page *page, pid_t *pids, size_t max)
{
    uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE), at = page->data_tail;
    const char *data = (const char *)page + PAGE;
    size_t n = 0;

    while (at + sizeof(struct perf_event_header) <= head) {
        struct sample s = {0};
        size_t offset = at % PAGE;

        memcpy(&s, data + offset, MIN(sizeof(s), PAGE - offset));
        if (s.header.size < sizeof(s.header))
            break;
        if (s.header.type == PERF_RECORD_SAMPLE && n < max && offset + sizeof(s) <= PAGE)
            pids[n++] = (pid_t)s.pid;
        at += s.header.size;
    }
    __atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
    return n;
}

size_t lockcalls_take(struct lockcalls *l, pid_t *pids, size_t max)
{
    size_t n = 0;

    for (unsigned i = 0; i < l->n; i++)
        n += take_of(l->cpus[i].page, pids + n, max - n);
    return n;
}
