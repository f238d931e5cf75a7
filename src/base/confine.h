#pragma once
/* Locks a daemon that needs no privilege in: no_new_privs and an allow list of system calls, for
 * all threads that start after it. The calls that all of them need (descriptors, memory, threads,
 * time) are here; each names its others in a table.
 *
 * An escape from a parser's bug then meets: no execve, no fork, no ptrace, no mount, no socket of a
 * family that is not listed, no file-system call but those listed. Refused calls fail with EPERM. A
 * library of its own, so that only those who use it link libseccomp. */

#include <stddef.h>

/* A call that is allowed when its argument number arg equals value under mask. */
struct confine_form {
    int call;
    unsigned arg;
    unsigned long mask, value;
};

#define CONFINE_ANY_BITS (~0ul)

struct confine_list {
    const int *calls;
    size_t n_calls;
    const struct confine_form *forms;
    size_t n_forms;
};

/* 0 or -errno. Cannot be undone. */
int confine_install(const struct confine_list *own);
