#pragma once
/* Identifiers and random bytes. Randomness is getrandom(2); a failure of it ends the program, since
 * going on would hand out guessable names. */

#include "base/util.h"

#include <stdbool.h>

#define IDS_SANDBOX_LEN  21 /* "i" and 20 of [a-z0-9]: what E2B's clients expect of a host label */
#define IDS_SANDBOX_SIZE (IDS_SANDBOX_LEN + 1)

void ids_random_bytes(void *out, size_t n);

/* len random characters of [a-z0-9] and a NUL into out[len + 1]. No modulo bias. */
void ids_random_text(char *out, size_t len);

/* A new sandbox id. */
void ids_sandbox(char out[static IDS_SANDBOX_SIZE]);

/* Exactly the form that ids_sandbox makes. */
bool ids_is_sandbox(const char *s);

/* The form of a snapshot's id: "s" and 20 of [a-z0-9]. */
bool ids_is_snapshot(const char *s);

/* That of a template which a tenant has built: "t" and 20 of [a-z0-9]. */
bool ids_is_template(const char *s);

/* 0 to 15 for a hex digit of either case, else -1. */
int ids_hex_value(char c);

/* Lower-case hex and a NUL into out[2 * n + 1]. */
void ids_hex(const void *bytes, size_t n, char *out);

/* The reverse: exactly 2 * n hex digits. 0 or -EINVAL. */
int ids_unhex(const char *text, void *out, size_t n);

/* Compares in time that depends only on n. */
bool ids_equal_secret(const void *a, const void *b, size_t n);
