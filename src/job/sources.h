#pragma once
/* Where packages come from: the host's own apt sources, as far as they are for the suite. */

#include <stdio.h>

/* The suite to use: the host's ("bookworm"); on a host that is no Debian, the one cay is tested
 * with. */
void sources_suite(char *out, size_t size);

/* Writes what apt_dir (the host's /etc/apt) has for this suite (its pockets -updates and -security
 * too) into files of their form in dir ("1.sources", "2.list", ...); other sources are left out.
 * Returns how many files it wrote. */
int sources_collect(const char *suite, const char *apt_dir, const char *dir);

/* Writes etc/apt/sources.list below the working directory, with Debian's own servers: the host's
 * mirrors may carry names or credentials of the host. 0 or -errno. */
int sources_put(void);
