#pragma once
/* Starting and stopping the server of this machine: what up and down share. */

#include "cli/cli.h"

/* Runs a program to its end, its output on ours. Its exit status, or -errno. */
int server_run_program(const char *const *argv);

/* Checks the machine, makes the user, directories and, where the settings name none, a certificate
 * (which they name from then on), starts cay-keep, waits until it serves. */
enum err_code server_start(struct cli *c, struct err *e);

/* cay-keep of this run directory while it lives, or 0 (cmd_status.c). */
pid_t server_pid(const struct settings *s);
