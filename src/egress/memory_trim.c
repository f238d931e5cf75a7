#include "egress/memory_trim.h"

#include "base/util.h"

#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT_BYTES (1 << 20)

/* Segments that are not writable were never written to (relocations are in the others), so that
 * their pages are the file's and are read again when they are dropped. The others are left
 * alone. */
static int drop_file_pages(struct dl_phdr_info *object, size_t size, void *arg)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &object->dlpi_phdr[i];
        uintptr_t begin = (object->dlpi_addr + h->p_vaddr) & ~(page - 1);
        uintptr_t end = object->dlpi_addr + h->p_vaddr + h->p_filesz;

        if (h->p_type == PT_LOAD && !(h->p_flags & PF_W))
            (void)!madvise((void *)begin, end - begin, MADV_DONTNEED); /* if not, it is as before */
    }
    return 0;
}

void memory_trim(void)
{
    malloc_trim(0);
    /* From here on buffers of some 64 KiB come and go with every read of a stream: not one by one
     * to and from the kernel. */
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    dl_iterate_phdr(drop_file_pages, NULL);
}
