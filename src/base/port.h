#pragma once
/* A port as people and peers write it: 1 to 5 decimal digits, 1 to 65535. Pure. */

#include <stddef.h>
#include <stdint.h>

/* Of exactly n bytes. 0: they are no port. */
uint16_t port_from_digits(const char *text, size_t n);

/* Of the whole text. */
uint16_t port_from_text(const char *text);
