#pragma once
/* The file `meta` in a template's directory: written last, so that a template without it is not
 * whole. cay-job writes it, privd reads it; root's alone, of one size. */

#include <stdint.h>

#define META_FILE             "meta"
#define META_MAGIC            0x63617974u /* "cayt" */
#define META_VERSION          1u
#define META_FINGERPRINT_SIZE 64
#define META_TEMPLATES_MAX    1024u /* numbers are 1..this */
/* Up to this the server's, which root imports; beyond it tenants', of images that cayd leaves. */
#define META_TEMPLATES_SERVER 64u

/* Inode numbers of templates begin where the operator says ([state] template_inodes, job/inodes.h),
 * those of `host` here at most: a server's first start waits for it. A layer in which they have
 * come half as far is not used again. */
#define META_HOST_INODES 65536u

struct meta {
    uint32_t magic, version;
    uint32_t number, pad;
    int64_t made_real_ms;
    uint64_t size_bytes;
    char fingerprint
        [META_FINGERPRINT_SIZE]; /* hex of what it was made from; host: facts of the host */
};

_Static_assert(sizeof(struct meta) == 96, "the file has one size");

/* Kinds of jobs, argv[3] of cay-job; argv[4] is a number. Lines on descriptor 1: "P <percent>
 * <text>" for progress, "E <errno> <text>" once, last, on failure. Exit status 0, or 1. */
/* number: template; made anew, the old one is replaced when whole */
#define JOB_TEMPLATE_BUILD   1u
#define JOB_TEMPLATE_REMOVE  2u /* number: template */
#define JOB_TEMPLATE_REFRESH 3u /* number: template; nothing when what is there is current */
/* number: 0; removes what replaced templates and broken builds left */
#define JOB_SWEEP      4u
#define JOB_ARCHIVE    5u /* number: of a kept layer; contract/archive.h */
#define JOB_BUCKET_PUT 6u /* likewise: its archive goes to the bucket; contract/bucket.h */
#define JOB_BUCKET_GET 7u /* likewise: it comes back */
/* number: 0; objects that no layer has any more are removed from the bucket */
#define JOB_BUCKET_SWEEP 8u
#define JOB_EXPORT       9u  /* number: of a kept layer; contract/exchange.h */
#define JOB_IMPORT       10u /* number: that a kept layer is to have; likewise */
#define JOB_KIND_COUNT   11u
#define JOB_LINE_MAX     256 /* bytes of a line, newline included; the rest is dropped */
