#pragma once
/* Tells a sandbox about connections that the kernel drops before they reach cay-egress.
 *
 * The rules of its network (sys/nft.h) let a number of new connections and questions through in a
 * second and drop the others. A program then sees EAI_AGAIN, ECONNREFUSED or a connection that
 * takes seconds, and nothing says why. Reading the kernel's counters would take a right over that
 * network; but what it lets through all comes here: when nearly as much came as it lets through,
 * the rest was dropped, and the sandbox's list of refusals says so, once a second at most. */

struct sandbox;

/* Tenths of what the kernel lets through from which on it counts as reached: an arrival is late by
 * its wait here, so that fewer seem to come. */
#define ARRIVALS_TENTHS 9u

/* A connection or a question of s has come. */
void arrivals_note(struct sandbox *s);
