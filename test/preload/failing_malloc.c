/* LD_PRELOAD of the tests: the n-th allocation that the program's own code makes fails, or all from it on. Which, a test
 * says through the file that CAY_TEST_FAIL names, which is mapped. A thread counts only after the file was there at the
 * program's start; libraries' own allocations do not fail. glibc only. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

struct control {
    _Atomic uint32_t fail_at;  /* 0: none */
    _Atomic uint32_t for_good; /* all after it too */
    _Atomic uint32_t calls;    /* since the test set it to 0 */
    _Atomic uint32_t failed;
};

static struct control *control;
static const char *text_begin, *text_end;

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
    if (at != MAP_FAILED)
        control = at;
}

static int fails(const void *caller)
{
    uint32_t at, call;

    if (!control || (const char *)caller < text_begin || (const char *)caller >= text_end)
        return 0;
    at = atomic_load(&control->fail_at);
    call = atomic_fetch_add(&control->calls, 1) + 1;
    if (at == 0 || call < at || (call > at && !atomic_load(&control->for_good)))
        return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t n, size_t size)
{
    size_t all;

    if (__builtin_mul_overflow(n, size, &all) || fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(p, all);
}

char *strndup(const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n + 1);

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);

    return copy ? memcpy(copy, text, n) : NULL;
}
