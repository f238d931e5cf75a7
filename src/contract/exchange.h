#pragma once
/* A snapshot as one file for other servers of the same operator (docs/snapshots.md):
 *
 *     SquashFS | struct exchange_header | MACs | struct archive_footer
 *
 * cay-privd writes and checks it: the MACs are of SquashFS and header together, in pieces as those
 * of an archive (contract/archive.h), with the key that the operator's servers share, and each is
 * bound to the header, whose nonce is of this file alone (seal/sign.h). cayd reads the header of
 * what it was sent, to find the template; it decides nothing else by it, and what it finds counts
 * only once cay-privd has checked the MACs of its own copy. */

#include "contract/archive.h"
#include "contract/proto.h"

#define EXCHANGE_HEADER_BYTES 512u
#define EXCHANGE_MAGIC        0x3165676e61686378ull
#define EXCHANGE_VERSION      1u
#define EXCHANGE_NONCE_BYTES  32u
#define EXCHANGE_SYSTEM_SIZE  64u
#define EXCHANGE_DIRS         3u

/* Of the SquashFS; the file is longer by header, MACs and footer. */
#define EXCHANGE_BYTES_MAX (ARCHIVE_BYTES_MAX - EXCHANGE_HEADER_BYTES)
#define EXCHANGE_FILE_MAX                                                              \
    (ARCHIVE_BYTES_MAX + ARCHIVE_BYTES_MAX / ARCHIVE_PIECE_BYTES * ARCHIVE_MAC_BYTES + \
     sizeof(struct archive_footer))

/* Where cay-job makes one: the name in ARCHIVING_DIR, which is no kept number. */
#define EXCHANGE_EXPORT_NUMBER (PRIVSEP_KEPT_MAX + 1u)

/* <state>/images/<this and the kept number>/0 is where cayd leaves one (core/image_spool.h): beyond
 * the numbers of templates. */
#define EXCHANGE_SPOOL_FIRST 4096u

/* A directory of the layer, as it is to be above the SquashFS. */
struct exchange_dir {
    uint32_t mode, uid, gid, pad;
    int64_t changed_s;
};

/* On disk, little-endian, as every machine that cay runs on. */
struct exchange_header {
    uint64_t magic;
    uint32_t version;
    uint32_t level; /* enum privsep_level */
    uint64_t bytes; /* of the SquashFS */
    uint8_t nonce[EXCHANGE_NONCE_BYTES];
    /* The texts are printable ASCII without spaces at their ends, filled up with zeros. */
    char template_name[PRIVSEP_TEMPLATE_TEXT];
    char template_digest[PRIVSEP_DIGEST_TEXT]; /* of its image; "": it is not of an image */
    char system[EXCHANGE_SYSTEM_SIZE];         /* of a template that is of none: "debian 12" */
    uint32_t cpu_milli;
    uint64_t memory_bytes, disk_bytes;
    int64_t made_real_ms;
    struct exchange_dir dirs[EXCHANGE_DIRS]; /* exchange_dir_names */
    uint8_t zero[152];
};

_Static_assert(sizeof(struct exchange_header) == EXCHANGE_HEADER_BYTES, "it has one size");

extern const char *const exchange_dir_names[EXCHANGE_DIRS]; /* "root", "root/etc", "usr" */

/* Printable ASCII in a field of that size, ended by a zero, and only zeros after it. */
bool exchange_is_text(const char *field, size_t size);

/* Of EXCHANGE_HEADER_BYTES. -EBADMSG: it is no such header; -EPROTO: of another version. */
int exchange_parse(const void *bytes, struct exchange_header *out);

/* That of a file, whose length has to be the one that its footer and its header say. -EBADMSG,
 * -EPROTO, or what reading answers. */
int exchange_read(int fd, struct exchange_header *out);
