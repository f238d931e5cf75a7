/* pools list | pools NAME MIB: holds that much, says how much it reckons, and waits for the end of its input. */
#include "pools.h"

#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATIENCE_S 60 /* never holds anything for longer */

static const struct pool *const tables[] = {pools_sockets, pools_options, pools_others};

size_t pools_count(size_t want, size_t each)
{
    return MIN(want / each + 1, (size_t)POOLS_MAX_COUNT);
}

static const struct pool *find(const char *name)
{
    for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
        for (const struct pool *p = tables[t]; p->name; p++)
            if (strcmp(p->name, name) == 0)
                return p;
    return NULL;
}

static void list(void)
{
    for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
        for (const struct pool *p = tables[t]; p->name; p++)
            printf("%s\t%s\t%s\n", p->name, p->about, p->bound ? p->bound : "");
}

/* The limit that the sandbox gives: what a tenant could do at once. */
static void raise_open_files(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

int main(int argc, char **argv)
{
    const struct pool *p = argc == 3 ? find(argv[1]) : NULL;
    char byte;

    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list();
        return 0;
    }
    if (!p) {
        fprintf(stderr, "usage: pools list | pools NAME MIB\n");
        return 2;
    }
    alarm(PATIENCE_S);
    raise_open_files();
    printf("begin\n");
    fflush(stdout);
    (void)!read(0, &byte, 1);
    errno = 0;
    size_t held = p->take(MIN((size_t)atoi(argv[2]) << 20, POOLS_MAX_BYTES));
    printf("held %zu %s\n", held, errno ? strerror(errno) : "-");
    fflush(stdout);
    (void)!read(0, &byte, 1);
    return 0;
}
