#pragma once
/* The variables of this program's sandbox. Where it goes on from a template's memory
 * (docs/generation.md) its own are of the sandbox in which that was made; the agent has written
 * those of now into files: who it is, and what its create has given. Kernels that are started have
 * them, those that run already are told (context.c), and env_restored puts them back. */

#include <jansson.h>

#define IDENTITY_DIR   "/run"
#define IDENTITY_FACTS "e2b/" /* files .NAME with the value of the variable NAME */
#define IDENTITY_GIVEN "sandbox/environment.json" /* names and values */

/* Sets the variables of the sandbox that dir tells of, where that is another one; those that
 * changed, a new object, or NULL: it is this one, or nothing tells. Control loop only: no other
 * thread reads the environment. */
json_t *identity_renew(const char *dir);
