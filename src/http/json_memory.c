/* jansson while memory is out.
 *
 * Its reader does not look whether it could keep a byte of a text: without one it reads and writes
 * beyond its buffer, or ends the process. So the first allocation that fails while it reads does
 * not return to it: the blocks that it has asked for are freed, and the reading has failed. It
 * holds nothing else. Where it makes or writes a value it goes on without a part, which is known
 * afterwards.
 *
 * json_wipe_frees is called once, at a program's start; without it this is jansson as it comes. */

#include "http/json_memory.h"

#include "http/json.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RECENT 8u /* most blocks that are freed while a text is read are the last ones */

static _Thread_local bool memory_out;
static _Thread_local bool cut;        /* a value that was made may lack a part */
static _Thread_local bool is_writing; /* a text, which says so itself */

struct pointers {
    void **all;
    size_t n, capacity;
};

static _Thread_local struct {
    jmp_buf failed;
    bool is_on;
    struct pointers blocks; /* that it has asked for, but those that were freed soon after */
    struct pointers freed;  /* of the others; one address may have been given out twice */
} reading;

static bool append(struct pointers *to, void *p)
{
    if (to->n == to->capacity) {
        size_t capacity = to->capacity ? 2 * to->capacity : 64;
        void **grown = realloc(to->all, capacity * sizeof(*grown));

        if (!grown)
            return false;
        to->all = grown;
        to->capacity = capacity;
    }
    to->all[to->n++] = p;
    return true;
}

static bool was_recent(const void *p)
{
    struct pointers *of = &reading.blocks;

    for (size_t i = of->n; i-- > 0 && i + RECENT >= of->n;)
        if (of->all[i] == p) {
            of->all[i] = of->all[--of->n];
            return true;
        }
    return false;
}

/* A text that is refused at its end gives back all of its values, the first one first: each is not
 * to be searched for among all of them. false: memory is out, and it is held still. */
static bool forget(void *p)
{
    return was_recent(p) || append(&reading.freed, p);
}

_Noreturn static void fail_reading(void)
{
    memory_out = true;
    longjmp(reading.failed, 1);
}

static void *allocate(size_t size)
{
    void *p = malloc(size);

    if (p && (!reading.is_on || append(&reading.blocks, p)))
        return p;
    free(p);
    if (reading.is_on)
        fail_reading();
    memory_out = true;
    cut |= !is_writing;
    return NULL;
}

static void wipe(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static void wipe_free(void *p)
{
    if (p && reading.is_on && !forget(p))
        fail_reading();
    wipe(p);
}

void json_wipe_frees(void)
{
    json_set_alloc_funcs(allocate, wipe_free);
}

void json_memory_begin(void)
{
    memory_out = false;
}

bool json_memory_was_out(void)
{
    return memory_out;
}

bool json_was_cut(void)
{
    bool was = cut;

    cut = false;
    return was;
}

void json_set_cut(void)
{
    cut = true;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;

    return (x > y) - (x < y);
}

static void sort(struct pointers *of)
{
    if (of->n > 1)
        qsort(of->all, of->n, sizeof(*of->all), by_address);
}

/* Those that were asked for once more than freed. */
static void free_held(void)
{
    struct pointers *blocks = &reading.blocks, *freed = &reading.freed;
    size_t f = 0;

    sort(blocks);
    sort(freed);
    for (size_t i = 0; i < blocks->n; i++) {
        while (f < freed->n && (uintptr_t)freed->all[f] < (uintptr_t)blocks->all[i])
            f++;
        if (f < freed->n && freed->all[f] == blocks->all[i])
            f++;
        else
            wipe(blocks->all[i]);
    }
}

static void end_reading(void)
{
    free(reading.blocks.all);
    free(reading.freed.all);
    reading.blocks = reading.freed = (struct pointers){0};
    reading.is_on = false;
}

/* -- read -------------------------------------------------------------------------------------- */

json_t *json_memory_load(const char *text, size_t len, size_t flags, json_error_t *why)
{
    json_t *volatile value = NULL;

    errno = 0;
    json_memory_begin();
    reading.is_on = true;
    if (setjmp(reading.failed) == 0)
        value = json_loadb(text, len, flags, why);
    else
        free_held();
    end_reading();
    memory_out |= !value && errno == ENOMEM;
    return value;
}

/* -- made and written -------------------------------------------------------------------------- */

/* Whether memory was there for one value or text. A lack from before stays known. */
static bool was_whole(bool before)
{
    bool whole = !memory_out;

    memory_out |= before;
    return whole;
}

json_t *json_make(const char *format, ...)
{
    bool before = memory_out;
    json_t *value;
    va_list ap;

    memory_out = false;
    va_start(ap, format);
    value = json_vpack_ex(NULL, 0, format, ap);
    va_end(ap);
    if (was_whole(before))
        return value;
    json_decref(value);
    return NULL;
}

char *json_text(const json_t *value, size_t flags)
{
    bool before = memory_out;
    char *text;

    memory_out = false;
    is_writing = true;
    text = value ? json_dumps(value, flags) : NULL;
    is_writing = false;
    if (was_whole(before))
        return text;
    free(text);
    return NULL;
}
