#pragma once
/* Names of the parts of the disk in its directories. Owns nothing, touches nothing but the names
 * that disk_is_kept, disk_has_image and disk_is_volume look for. Private to the runtime. */

#include "runtime/disk.h"

#define DISK_NAME_SIZE 32

#define DISK_IMAGE_NAME "image" /* in a layer: its programs, sealed */

/* The name of a slot's layer, <slot>.<gen>; returns name. */
const char *disk_name_layer(char name[static DISK_NAME_SIZE], uint32_t slot, uint32_t gen);

/* The name of what has a number of its own: kept files, a volume; returns name. */
const char *disk_name_number(char name[static DISK_NAME_SIZE], uint32_t n);
