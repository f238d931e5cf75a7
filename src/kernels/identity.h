#pragma once
/* This program's variables that name its sandbox. Where it goes on from a template's memory
 * (docs/generation.md) they are of the sandbox in which that was made; the agent has written those
 * of now into files. Kernels that are started, and variables that env_restored puts back, have
 * them. */

#define IDENTITY_DIR "/run/e2b" /* files .NAME with the value of the variable NAME */

/* Sets those that are set and have a file in dir. A file that cannot be read leaves its variable as
 * it is. Control loop only: no other thread reads the environment. */
void identity_renew(const char *dir);
