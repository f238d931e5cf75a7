#pragma once
/* A sealed file: a stream of bytes, encrypted and authenticated in pieces, which only the holder
 * of a key can make or read. It is the form in which the memory of a paused sandbox lies on the
 * disk.
 *
 *     header | piece 0 | piece 1 | ... | last piece
 *
 * The header has a random salt and a label that says what the file belongs to (whose memory, of
 * which kernel, template and agent), and its own MAC. The key of a file is derived from the key,
 * salt and label. A piece is SEAL_PIECE_BYTES of the stream, the last one fewer or as many, with
 * AES-256-GCM; its nonce is its number and whether it is the last. So a changed bit, a piece
 * that is missing, moved, repeated or another file's, and a cut at whatever byte are refused,
 * and the reader can say where. Nothing of a piece is handed on before it was found whole; but
 * pieces before it were: a caller uses none of them until the end is there.
 *
 * Functions return 0 or -errno. They block as long as the files do. */

#include "contract/seal_boot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEAL_PIECE_BYTES 65536u
#define SEAL_TAG_BYTES   16
#define SEAL_SALT_BYTES  32
#define SEAL_MAC_BYTES   32
#define SEAL_VERSION     1u

/* On disk. The MAC is of all before it. */
struct seal_header {
    char magic[8];
    uint32_t version;
    uint32_t piece_bytes;
    uint8_t salt[SEAL_SALT_BYTES];
    uint8_t label[SEAL_LABEL_BYTES];
    uint8_t mac[SEAL_MAC_BYTES];
};

_Static_assert(sizeof(struct seal_header) == 208, "the first piece begins at 208");

#define SEAL_WORKERS 4u /* of a reader, for stretches of the stream: seal_read_to */

/* For a piece at a time. */
struct seal_worker {
    const struct seal *seal;
    struct evp_cipher_ctx_st *cipher; /* with the file's key */
    uint8_t plain[SEAL_PIECE_BYTES];
    uint8_t sealed[SEAL_PIECE_BYTES + SEAL_TAG_BYTES];
};

/* Either end. The fields are the functions' own but for what is said of one. */
struct seal {
    int fd;              /* the caller's */
    bool begun, last;    /* the first, the last piece was written or read */
    uint64_t number;     /* reader: the piece that is being read; after an error: where it is */
    uint64_t left_bytes; /* writer */
    uint64_t file_bytes; /* reader */
    size_t used, have;   /* of the first worker's plain bytes */
    struct seal_worker workers[SEAL_WORKERS]; /* all but the first for seal_read_to alone */
};

/* Begins a file at fd, which is empty, that may have file_bytes_max bytes in all. -ENOMEM, or what
 * writing answers. */
int seal_write_begin(struct seal *s, int fd, const struct seal_secret *secret,
                     uint64_t file_bytes_max);

/* -EFBIG: it would become larger than it may. */
int seal_write(struct seal *s, const void *bytes, size_t n);

/* Writes what is left; the file is whole, and on the disk, when this answers 0. */
int seal_write_end(struct seal *s);

/* Begins to read the file at fd from its first byte. -EBADMSG: its header is damaged, or of another
 * key; -ESTALE: it is whole, but of another label; -EPROTO: of another version. */
int seal_read_begin(struct seal *s, int fd, const struct seal_secret *secret);

/* n bytes. -EBADMSG: piece s->number is damaged; -ENODATA: the stream has fewer. */
int seal_read(struct seal *s, void *out, size_t n);

/* n bytes into the file at fd, from its first byte on: those of a long stretch by several threads,
 * on other processors. Each piece is written when it was found whole, but a later one may be before
 * an earlier one. Errors as of seal_read; *of_file: it is one of writing that file. */
int seal_read_to(struct seal *s, int fd, uint64_t n, bool *of_file);

/* That nothing comes after what was read. -EBADMSG: something does, or the last piece is
 * damaged. */
int seal_read_end(struct seal *s);

/* Forgets the key and what is in its buffers; either end, at any time, also one that never
 * began. */
void seal_forget(struct seal *s);

/* Where piece number begins in the file. */
uint64_t seal_piece_at(uint64_t number);
