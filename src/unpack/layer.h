#pragma once
/* A layer of a container image over the tree that the layers below it made: a tar archive, as it is
 * or compressed once with gzip or zstd, read with libarchive. The archive is hostile until shown
 * otherwise; the tree is what archives made of it.
 *
 * Taken are folders, files (sparse ones too), symbolic links with any target, hard links to what is
 * in the tree, owners 0 to 65535, modes, times of change; white-outs and opaque folders of the OCI
 * image-spec 1.1 (layer.md), which hide what lower layers brought and nothing of their own. Left
 * out and counted are devices, FIFOs and sockets; set-id bits of what belongs to cay-init's own id.
 * Extended attributes and ACLs are not taken. All else ends with an error that names the entry. */

#include "base/err.h"
#include "base/util.h"

#include <stdbool.h>

/* Of all layers: entries, with the directories that their names imply; bytes of files, holes
 * included. */
#define UNPACK_ENTRIES_MAX 1000000u
#define UNPACK_BYTES_MAX   (32ull * 1024 * 1024 * 1024)

/* Bytes of the archives, without their compression, that are gone through in all: also contents of
 * what is not taken, of which an archive can promise any number. A layer is read twice. */
#define UNPACK_READ_MAX (128ull * 1024 * 1024 * 1024)

/* ACLs and extended attributes of one entry, and how many of them count as an entry more. */
#define UNPACK_NOTES_MAX       1024u
#define UNPACK_NOTES_PER_ENTRY 16u

#define UNPACK_ID_MAX       65535u
#define UNPACK_FREE_PERCENT 5u /* of the disk that stay free, and of its inodes */

struct unpack {
    int root_fd; /* of the tree; not owned */
    uint64_t entries, bytes, written;
    uint64_t read; /* of the passes before */
    uint64_t left_out, set_id_dropped;
    uint64_t contents; /* bytes of files that were written, without holes */
};

/* fd: the layer, read from its beginning, twice where it is not the first. */
enum err_code layer_unpack(struct unpack *u, int fd, bool is_first, struct err *e);
