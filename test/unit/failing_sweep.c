#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_malloc.h"
#include "failing_sweep.h"

#define CALLS_MAX 5000u

void failing_sweep(const struct failing_sweep *s)
{
    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;
        size_t refused = 0;

        for (size_t n = 1; failed; n++) {
            size_t held = failing_malloc_held();

            assert_true(n < CALLS_MAX);
            failing_malloc_begin(n, for_good);
            s->run(s->arg);
            failed = failing_malloc_end();
            refused += s->refused(s->arg, failed);
            assert_int_equal(failing_malloc_held(), held);
        }
        assert_true(refused >= s->refused_min);
    }
}
