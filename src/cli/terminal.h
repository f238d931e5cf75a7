#pragma once
/* Text for a terminal that others chose: names of programs, hosts, paths, reasons. A terminal obeys
 * control characters (ESC, BEL, the C1 set) and shows text in another order after directional ones
 * (Unicode TR 36, section 2), so each is shown as one '?'. */

#include <stddef.h>
#include <stdio.h>

/* Replaces in place; text never grows. */
void terminal_clean(char *text);

/* Writes before as it is, then text with its controls replaced. */
void terminal_put(FILE *out, const char *before, const char *text);

/* For json_dumpf: what is printed on a terminal is ASCII, because JSON leaves the C1 set as it is;
 * else 0. */
size_t terminal_json_flags(FILE *out);
