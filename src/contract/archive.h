#pragma once
/* The file in which the layer of an archived sandbox lies (docs/archive.md): cay-job makes it,
 * cay-seal writes and checks its MACs (seal/sign.h), cay-privd has the kernel mount what is before
 * them. It lies in the layer itself, beside the directories that an overlay mounts. */

#include <stdint.h>

#define ARCHIVE_FILE        "archive"
#define ARCHIVING_DIR       "archiving" /* of the state disk: layers that are just being made */
#define ARCHIVE_PIECE_BYTES (1u << 20)
#define ARCHIVE_MAC_BYTES   32u
#define ARCHIVE_MAGIC       0x3161796163726331ull
/* Its MACs are checked before each start on it, which has a time limit. */
#define ARCHIVE_BYTES_MAX (2048ull * 1024 * 1024)

/* On disk, little-endian; behind the MACs, at the end of the file. */
struct archive_footer {
    uint64_t magic;
    uint64_t bytes; /* of the contents */
};

/* How many pieces, and so MACs, contents of that length have. */
uint64_t archive_pieces(uint64_t bytes);

/* The length of the contents, by the footer: believed by nothing before the MACs are checked.
 * -EBADMSG: it is no archive. */
int archive_length(int fd, uint64_t *bytes);
