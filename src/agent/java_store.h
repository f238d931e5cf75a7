#pragma once
/* Java's store of trusted CAs (/etc/ssl/certs/java/cacerts), in the form that Debian and
 * the JDKs before 18 have it in, and that all of them read: JKS. A certificate is put behind those
 * that are there. Pure; nothing blocks.
 *
 * The form is that of sun.security.provider.JavaKeyStore: magic, version, number of entries; of
 * each entry a tag, alias, time and certificate; behind all of them a SHA-1 of the store's password
 * and the rest. The password of these stores is public (`changeit`): the digest finds damage, and
 * protects from nothing (agent/sha1.h). */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The store with the certificates of pem (one or more) to out, which is empty. 1; 0: it has all of
 * them already, out stays empty; -EINVAL: no JKS, of another password, or no PEM; -ENOMEM. */
int java_store_add(const char *store, size_t n, const char *pem, uint64_t now_ms, struct buf *out);

/* Likewise the store without the certificates of pem. 0: it has none of them. -EINVAL also: it has
 * entries that are no certificates. */
int java_store_remove(const char *store, size_t n, const char *pem, struct buf *out);
