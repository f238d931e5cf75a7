#pragma once
/* The MACs of a file that is not secret, and whose parser is the kernel's: of an archive (SquashFS,
 * docs/archive.md), which is mounted only where all of it is as it was written.
 *
 *     contents | MAC of piece 0 | MAC of piece 1 | ... | footer
 *
 * A piece is ARCHIVE_PIECE_BYTES (contract/archive.h) of the contents, the last one fewer or as
 * many. The key of a file is derived from the key, the label and the length of the contents, and
 * each MAC is of the number of its piece too: a bit that changed, a piece that was moved or is
 * another file's, and a cut are refused, with the place. Functions return 0 or -errno, and block as
 * long as the file does.
 *
 * Of a file for other servers (contract/exchange.h) the contents end with its header, and the key
 * is derived from that too: archives of a length have one key, as each lies where it belongs, but
 * such files come from anywhere, and a header has a nonce. */

#include "contract/seal_boot.h"

#include <stdint.h>

struct sign_why {
    char text[160];
};

/* Puts the MACs behind the contents of fd, which is open for reading and writing; on the disk when
 * this answers 0. */
int sign_write(int fd, const struct seal_secret *secret, struct sign_why *why);
int sign_write_exchange(int fd, const struct seal_secret *secret, struct sign_why *why);

/* -EBADMSG: it is not as sign_write left it. */
int sign_check(int fd, const struct seal_secret *secret, struct sign_why *why);
int sign_check_exchange(int fd, const struct seal_secret *secret, struct sign_why *why);
