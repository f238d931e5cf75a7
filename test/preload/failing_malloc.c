/* LD_PRELOAD of the tests: the n-th allocation that the program's own code makes fails, or all from it on. Which, a test
 * says through the file that CAY_TEST_FAIL names, which is mapped. A thread counts only after the file was there at the
 * program's start; libraries' own allocations do not fail. With CAY_TEST_HELD the file says, too, how many blocks the program's
 * own code has that were not freed yet: of a program that does not fork, whose children would write there as well. glibc only. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

#define HELD_MAX 65536u /* a power of two */

struct control {
    _Atomic uint32_t fail_at;  /* 0: none */
    _Atomic uint32_t for_good; /* all after it too */
    _Atomic uint32_t calls;    /* since the test set it to 0 */
    _Atomic uint32_t failed;
    _Atomic uint32_t held;
};

static struct control *control;
static const char *text_begin, *text_end;
static bool counts_held;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *held[HELD_MAX]; /* a hash table with linear probing */
static uint32_t n_held;

/* The first object is the program. */
static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            text_begin = (const char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            text_end = text_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CAY_TEST_FAIL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at;

    if (fd < 0)
        return;
    at = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    dl_iterate_phdr(find_text, NULL);
    counts_held = getenv("CAY_TEST_HELD") != NULL;
    if (at != MAP_FAILED)
        control = at;
}

static bool is_own(const void *caller)
{
    return control && (const char *)caller >= text_begin && (const char *)caller < text_end;
}

/* -- what is held ---------------------------------------------------------------------------------- */

static uint32_t slot_of(const void *p)
{
    return (uint32_t)((uintptr_t)p >> 4) * 2654435761u % HELD_MAX;
}

/* Those behind an entry that goes move up, so that a search still finds them. */
static void empty(uint32_t i)
{
    uint32_t next = i;

    held[i] = NULL;
    for (;;) {
        next = (next + 1) % HELD_MAX;
        if (!held[next])
            return;
        if ((next - slot_of(held[next])) % HELD_MAX < (next - i) % HELD_MAX)
            continue;
        held[i] = held[next];
        held[next] = NULL;
        i = next;
    }
}

static void *noted(void *p, const void *caller)
{
    uint32_t i = slot_of(p);

    if (!p || !counts_held || !is_own(caller))
        return p;
    pthread_mutex_lock(&lock);
    while (held[i])
        i = (i + 1) % HELD_MAX;
    held[i] = p;
    if (++n_held == HELD_MAX / 2)
        abort();
    atomic_store(&control->held, n_held);
    pthread_mutex_unlock(&lock);
    return p;
}

static bool release(const void *p)
{
    uint32_t i = slot_of(p);
    bool found;

    if (!p || !counts_held || !control)
        return false;
    pthread_mutex_lock(&lock);
    while (held[i] && held[i] != p)
        i = (i + 1) % HELD_MAX;
    found = held[i] != NULL;
    if (found) {
        empty(i);
        atomic_store(&control->held, --n_held);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* -- the decision ---------------------------------------------------------------------------------- */

static int fails(const void *caller)
{
    uint32_t at, call;

    if (!is_own(caller))
        return 0;
    at = atomic_load(&control->fail_at);
    call = atomic_fetch_add(&control->calls, 1) + 1;
    if (at == 0 || call < at || (call > at && !atomic_load(&control->for_good)))
        return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = ENOMEM;
    return 1;
}

static void noted_again(void *p)
{
    (void)noted(p, text_begin);
}

#include "malloc_functions.h"
