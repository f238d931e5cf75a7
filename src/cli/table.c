/* Tables on standard output: cells are collected, so that each column is as wide as its longest
 * one, and printed at once. */

#include "cli/commands.h"
#include "cli/terminal.h"

#include <stdarg.h>
#include <string.h>

#define MAX_COLUMNS 12
#define MAX_CELL    512

struct table {
    size_t columns, count, capacity;
    size_t width[MAX_COLUMNS];
    char (*cells)[MAX_CELL];
};

struct table *table_new(const char *const *heads, size_t columns)
{
    struct table *t = calloc(1, sizeof(*t));

    if (!t || columns > MAX_COLUMNS) {
        free(t);
        return NULL;
    }
    t->columns = columns;
    for (size_t i = 0; i < columns; i++)
        table_cell(t, "%s", heads[i]);
    return t;
}

void table_cell(struct table *t, const char *fmt, ...)
{
    va_list ap;
    char *cell;

    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? t->capacity * 2 : 64;
        void *more = reallocarray(t->cells, capacity, MAX_CELL);

        if (!more) {
            fputs("cay: out of memory\n", stderr);
            exit(CLI_FAILED);
        }
        t->cells = more;
        t->capacity = capacity;
    }
    cell = t->cells[t->count];
    va_start(ap, fmt);
    vsnprintf(cell, MAX_CELL, fmt, ap);
    va_end(ap);
    terminal_clean(cell);
    t->width[t->count % t->columns] = MAX(t->width[t->count % t->columns], strlen(cell));
    t->count++;
}

void table_cell_list(struct table *t, const json_t *list, const char *between, const char *none)
{
    char text[160] = "";
    size_t used = 0, i;
    json_t *item;

    json_array_foreach (list, i, item) {
        const char *one = json_string_value(item);
        char number[24] = "";

        if (json_is_integer(item))
            snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(item));
        if (used < sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used ? between : "",
                                     one ? one : number);
    }
    table_cell(t, "%s", text[0] ? text : none);
}

void table_print(struct table *t, FILE *out)
{
    for (size_t i = 0; i < t->count; i++) {
        size_t column = i % t->columns;

        if (column + 1 == t->columns)
            fprintf(out, "%s\n", t->cells[i]);
        else
            fprintf(out, "%-*s  ", (int)t->width[column], t->cells[i]);
    }
}

void table_free(struct table *t)
{
    if (t)
        free(t->cells);
    free(t);
}

void table_duration(int64_t seconds, char *out, size_t size)
{
    long long s = seconds < 0 ? 0 : seconds;

    if (s < 60)
        snprintf(out, size, "%llds", s);
    else if (s < 3600)
        snprintf(out, size, "%lldm %llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, size, "%lldh %lldm", s / 3600, s % 3600 / 60);
    else
        snprintf(out, size, "%lldd %lldh", s / 86400, s % 86400 / 3600);
}

void table_bytes(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    size_t i = 0;

    while (n >= 1024 && i + 1 < ARRAY_SIZE(units)) {
        n /= 1024;
        i++;
    }
    snprintf(out, size, n < 10 && i > 0 ? "%.1f %s" : "%.0f %s", n, units[i]);
}
