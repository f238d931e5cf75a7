#pragma once
/* A test's code while memory is out: its n-th allocation fails, for every n until none fails, alone and then with all
 * after it (failing_malloc.h). */

#include <stdbool.h>
#include <stddef.h>

struct failing_sweep {
    void (*run)(void *arg); /* the tested call, once */
    bool (*refused)(
        void *arg,
        bool failed); /* asserts that its answer is right, and gives back what run has left */
    void *arg;
    size_t refused_min; /* of each of the two sweeps */
};

/* Asserts besides that nothing more is held after each, and that fewer than 5000 allocations are made. */
void failing_sweep(const struct failing_sweep *s);
