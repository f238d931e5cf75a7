#pragma once
/* Where packages come from: the host's own apt sources, as far as they are for the suite. */

#include <stdio.h>

/* The host's suite ("bookworm") into out; -ENOENT when the host is no Debian. */
int sources_suite(char *out, size_t size);

/* Writes what the host's /etc/apt has for this suite (its pockets -updates and -security too) to a file
 * in deb822 or one-line form; sources of anybody else are left out. Returns how many files it wrote into
 * dir ("1.sources", "2.list", ...), or -errno. */
int sources_collect(const char *suite, const char *dir);
