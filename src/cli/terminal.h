#pragma once
/* Text for a terminal that others chose: names of programs, hosts, paths, reasons. A terminal obeys
 * control characters (ESC, BEL, the C1 set) and shows text in another order after directional ones
 * (Unicode TR 36, section 2), so each is shown as one '?'; so is a byte that is no UTF-8, which is
 * one of the C1 set to a terminal of eight bits. */

#include <stddef.h>
#include <stdio.h>

/* From now on what is printed to a terminal, by whatever function, has only line ends and tabs as
 * controls: for what the functions below are not used for, or not yet. A program's output that
 * `exec` passes on does not come this way. */
void terminal_guard(void);

/* The program's own control sequence, past the guard. */
void terminal_control(FILE *out, const char *sequence);

/* Replaces in place; text never grows. */
void terminal_clean(char *text);

/* Writes before as it is, then text with its controls replaced. */
void terminal_put(FILE *out, const char *before, const char *text);

/* For json_dumpf: text on a terminal is ASCII, because JSON leaves the C1 set as it is; else 0. */
size_t terminal_json_flags(FILE *out);
