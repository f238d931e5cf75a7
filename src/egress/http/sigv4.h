#pragma once
/* AWS Signature Version 4 of one HTTP request, in its Authorization header. Pure. Source: AWS
 * General Reference, "Signature Version 4 signing process". */

#include "base/buf.h"
#include "http/message.h"

#include <time.h>

#define SIGV4_HASH_SIZE 65 /* SHA-256 in hex */
#define SIGV4_DATE_SIZE 17 /* 20260101T000000Z */

struct sigv4 {
    const char *access_key_id, *secret_access_key;
    const char *region, *service;
    const char *method;
    const char *path;  /* as it is sent, percent-encoded; not of the query */
    const char *query; /* as it is sent, without '?' */
    const char *payload_hash;
    const char *date;                  /* sigv4_date: the value of x-amz-date */
    const struct http_header *headers; /* those to sign, host and x-amz-date among them */
    size_t header_count;
};

void sigv4_date(time_t at, char out[static SIGV4_DATE_SIZE]);

/* 0 or -ENOMEM. */
int sigv4_hash(const void *bytes, size_t n, char out[static SIGV4_HASH_SIZE]);

/* Appends the value of Authorization. 0, -EINVAL (a path or query that cannot be decoded) or
 * -ENOMEM. */
int sigv4_authorize(const struct sigv4 *s, struct buf *out);

/* Region and service of the scope in a client's own header (AWS4-HMAC-SHA256 Credential=...). 0 or
 * -EINVAL. */
int sigv4_scope(const char *authorization, char *region, char *service, size_t size);
