#pragma once
/* The names of a sandbox and their numbers in a file, names-SLOT of the state directory: programs
 * keep the addresses that they resolved, and each is to mean the same name when cay-egress has
 * begun again. The file's first line says whose it is. Only with a restart in between, and two
 * names with the same number, of which the other one is asked for first, would a name's address
 * mean another; so the file need not survive the machine's end, and where it cannot be written
 * names go on without it. Names of command sandboxes are not kept. */

struct egress;
struct sandbox;

/* Notes the files that are there, before the system call filter, which lets no directory be listed.
 * 0 or -errno. */
int names_kept_find(struct egress *eg);

/* All sandboxes of cay-privd's are known: of those files, the ones of slots without a sandbox go,
 * as theirs have ended while no cay-egress was there. */
void names_kept_sweep(struct egress *eg);

/* Its id has come: its kept names are there again, and those it asks for from now on are kept. */
void names_kept_open(struct sandbox *s);

/* It has ended. */
void names_kept_drop(const struct sandbox *s);
