#pragma once
/* The CA that the sandbox's way out signs with, where it has to read TLS: made known to what
 * runs here. Only a certificate, never a key. */

#include "agent/common/agent.h"

#define TRUST_PEM_MAX 16384

/* Writes pem to /etc/ssl/certs/cay-egress.pem and adds it to the distribution's bundle there and to
 * Java's store, right after what is being answered now and before anything else, and the variables
 * that name one of the two to /etc/environment; makes these the default of every process
 * (a->defaults). Again with the same: nothing new; with another, as in a template that another
 * tenant published: the former one goes out of all three. Best effort: a template may have no
 * /etc/ssl; each file left out is logged. Blocks for the copy of bundle and store into the
 * sandbox's own layer, once, before any other program runs here. In a command sandbox (agent.h) the
 * files are there: only the defaults. */
void trust_install(struct agent *a, const char *pem);
