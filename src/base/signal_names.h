#pragma once
/* The names of signals, in one table: the words that an agent puts into the status of a process
 * ("signal: killed", as Go's os.ProcessState prints it, which is what clients have seen so far),
 * and the names of signal(7). Pure. */

#include <stddef.h>

/* "killed", "SIGKILL"; NULL for a signal that is not in the table. Static. */
const char *signal_names_words(int number);
const char *signal_names_name(int number);

/* The number of "SIGKILL"; 0: not in the table. */
int signal_names_number(const char *name);

/* The words within a status, "killed" of "signal: killed (core dumped)", and their length; NULL: it
 * was no signal. */
const char *signal_names_split(const char *status, size_t *n);

/* The number of n bytes of words, "killed" or, for one that is not in the table, "signal 34"; 0:
 * neither. */
int signal_names_from_words(const char *words, size_t n);
