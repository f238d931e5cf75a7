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
#include <stdlib.h>
#include <string.h>

static _Thread_local bool memory_out;
static _Thread_local bool cut;        /* a value that was made may lack a part */
static _Thread_local bool is_writing; /* a text, which says so itself */

static _Thread_local struct {
    jmp_buf failed;
    bool is_on;
    void **blocks; /* that it holds */
    size_t n, capacity;
} reading;

static bool note(void *p)
{
    if (reading.n == reading.capacity) {
        size_t capacity = reading.capacity ? 2 * reading.capacity : 64;
        void **grown = realloc(reading.blocks, capacity * sizeof(*grown));

        if (!grown)
            return false;
        reading.blocks = grown;
        reading.capacity = capacity;
    }
    reading.blocks[reading.n++] = p;
    return true;
}

/* Most often one of the last. */
static void forget(const void *p)
{
    for (size_t i = reading.n; i-- > 0;)
        if (reading.blocks[i] == p) {
            reading.blocks[i] = reading.blocks[--reading.n];
            return;
        }
}

static void *allocate(size_t size)
{
    void *p = malloc(size);

    if (p && (!reading.is_on || note(p)))
        return p;
    free(p);
    memory_out = true;
    if (reading.is_on)
        longjmp(reading.failed, 1);
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
    if (reading.is_on)
        forget(p);
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

/* -- read -------------------------------------------------------------------------------------- */

json_t *json_memory_load(const char *text, size_t len, size_t flags, json_error_t *why)
{
    json_t *volatile value = NULL;

    errno = 0;
    json_memory_begin();
    reading.n = 0;
    reading.is_on = true;
    if (setjmp(reading.failed) == 0)
        value = json_loadb(text, len, flags, why);
    else
        while (reading.n > 0)
            wipe(reading.blocks[--reading.n]);
    reading.is_on = false;
    free(reading.blocks);
    reading.blocks = NULL;
    reading.n = reading.capacity = 0;
    memory_out |= !value && errno == ENOMEM;
    return value;
}

/* -- made and written -------------------------------------------------------------------------- */

json_t *json_make(const char *format, ...)
{
    bool before = memory_out, whole;
    json_t *value;
    va_list ap;

    memory_out = false;
    va_start(ap, format);
    value = json_vpack_ex(NULL, 0, format, ap);
    va_end(ap);
    whole = !memory_out;
    memory_out |= before;
    if (whole)
        return value;
    json_decref(value);
    return NULL;
}

/* A lack of memory from before stays known. */
char *json_text(const json_t *value, size_t flags)
{
    bool before = memory_out, whole;
    char *text;

    memory_out = false;
    is_writing = true;
    text = value ? json_dumps(value, flags) : NULL;
    is_writing = false;
    whole = !memory_out;
    memory_out |= before;
    if (whole)
        return text;
    free(text);
    return NULL;
}
