#pragma once
/* A test that this machine cannot hold is skipped and says why: nothing is skipped in silence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIP(why)                                \
    do {                                         \
        print_message("# skipped: %s\n", (why)); \
        skip();                                  \
    } while (0)

/* A requirement that the group's set_up found missing; NULL: nothing. */
#define SKIP_FOR(reason)  \
    do {                  \
        if (reason)       \
            SKIP(reason); \
    } while (0)

#define NEEDS_ROOT SKIP_FOR(geteuid() != 0 ? "needs root" : NULL)
