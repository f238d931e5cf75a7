#pragma once
/* Running a foreign program and reading what it says, line by line. */

#include "base/util.h"

#define RUN_LINE_MAX 512

/* Starts argv[0] (a path) with standard input from /dev/null and both outputs into one pipe;
 * on_line gets each line, cut at RUN_LINE_MAX, without its newline. Returns its exit status
 * (0..255, 128 + signal), or -errno. Also reaps what it leaves behind: the caller is PID 1. */
int run_program(char *const argv[], void (*on_line)(void *arg, const char *line), void *arg);

/* The same, of a program that is to have less than the job: enter is called in its process, before
 * it is executed, which it is only where that answers 0 (else: status 126). */
int run_program_within(char *const argv[], int (*enter)(const void *walls), const void *walls,
                       void (*on_line)(void *arg, const char *line), void *arg);
