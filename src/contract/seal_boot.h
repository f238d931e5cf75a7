#pragma once
/* The descriptors that cay-seal is started with, by number, and the block in the first. */

#include <stdint.h>

#define SEAL_BOOT_SECRET_FD 3 /* a pipe with a struct seal_secret */
#define SEAL_BOOT_DIR_FD    4 /* the directory of an image's files */
#define SEAL_BOOT_FILE_FD   5 /* the sealed file, at its beginning */

#define SEAL_KEY_BYTES   32
#define SEAL_LABEL_BYTES 128

struct seal_secret {
    uint8_t key[SEAL_KEY_BYTES];
    uint8_t label[SEAL_LABEL_BYTES]; /* a label that differs in one byte is another sandbox's */
};
