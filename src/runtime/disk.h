#pragma once
/* Where templates and writable layers are: one table of functions per kind of storage.
 *
 * `btrfs`: a subvolume with a hard limit per layer, on the file system of the state directory when
 * that is btrfs and has quotas on, else on a loop image in it. `memory`: nothing on disk, each
 * sandbox's layer is a tmpfs of its own that ends with it. Names of layers are <slot>.<gen>.
 * Private to the runtime. */

#include "runtime/disk_room.h"
#include "runtime/runtime.h"

struct disk;

/* A volume that a sandbox is to have. bytes: its limit, which is set anew; 0: it is not known, and
 * stays. */
struct disk_volume {
    uint32_t number;
    bool read_only;
    uint64_t bytes;
    struct disk_rooms *rooms;
};

struct disk_backend {
    const char *name;
    int (*layer_make)(struct disk *d, uint32_t slot, uint32_t gen);
    int (*layer_destroy)(struct disk *d, uint32_t slot, uint32_t gen);
    /* Of a slot that was made ahead, in which nothing was started: its layer is as it was made. */
    int (*layer_give_back)(struct disk *d, uint32_t slot, uint32_t gen);
    /* The layer of a slot in which cay-init waits, and no program of a tenant ran, makes room for
     * another that is to have its name: it stays mounted until the slot has that one, and is
     * removed by layer_aside_end, where its absence is success. NULL, as of layer_keep. */
    int (*layer_put_aside)(const struct disk *d, uint32_t slot, uint32_t gen);
    int (*layer_aside_end)(const struct disk *d, uint32_t slot, uint32_t gen);
    /* The layer, of which no mount is left, becomes kept number n, and all of it is on the disk
     * when this returns. Again: 0 where it was done. layer_take is the way back, for a layer that
     * is mounted next; where there is no such number any more but the layer, 0. All of these NULL:
     * layers end with their sandbox. */
    int (*layer_keep)(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n);
    int (*layer_take)(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n);
    /* ahead: so many copies were made of it, which go too. */
    int (*kept_drop)(const struct disk *d, uint32_t n, uint32_t ahead);
    /* A snapshot, which a commit of the file system has when this returns: of a slot's layer to a
     * number, and of a number to a new layer. settle: the kernel's marks of a volatile overlay go
     * from it. ahead: so many copies of the number were made already, of which one is taken, if any
     * is left: DISK_FORGOT then, as of layer_forget, which was done before they were made. */
    int (*layer_copy)(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n);
    int (*kept_settle)(const struct disk *d, uint32_t n);
    int (*layer_from)(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n,
                      uint32_t ahead);
    /* So many copies of a number, for layer_from (copies_ahead.h). */
    int (*kept_copies_ahead)(const struct disk *d, uint32_t n, uint32_t count);
    /* The file that is in a layer or below a number (contract/archive.h): a descriptor, to be read;
     * -ENOENT. swap: the layer that a job made in ARCHIVING_DIR becomes number n, whose layer is
     * removed; one commit of the file system has it. undo: the new one is removed, where it is.
     * put: it becomes number n, which has none. */
    int (*archive_open)(const struct disk *d, uint32_t slot, uint32_t gen);
    int (*archive_open_kept)(const struct disk *d, uint32_t n);
    bool (*archive_is_away)(const struct disk *d, uint32_t n); /* contract/bucket.h */
    int (*archive_open_new)(const struct disk *d, uint32_t n);
    int (*archive_swap)(const struct disk *d, uint32_t n);
    int (*archive_undo)(const struct disk *d, uint32_t n);
    int (*archive_put)(const struct disk *d, uint32_t n);
    /* A volume: a tree of its own with a limit, on the disk when make returns (after a failure
     * nothing is left). tree: a detached mount of it with the ids of a user namespace, fit to be
     * written to by an overlay; read-only where it is not to be. */
    int (*volume_make)(const struct disk *d, uint32_t n, uint64_t bytes);
    int (*volume_remove)(const struct disk *d, uint32_t n);
    int (*volume_tree)(const struct disk *d, const struct disk_volume *v, int userns_fd);
    /* The sealed memory of a sandbox, a file of root's alone in its layer, beside its files:
     * its size counts as the sandbox's. make: a new one, to be written; else the one that is there,
     * to be read. A descriptor or -errno; -ENOENT. remove: its absence is success. */
    int (*image_open)(const struct disk *d, uint32_t slot, uint32_t gen, bool make);
    int (*image_remove)(const struct disk *d, uint32_t slot, uint32_t gen);
    /* The sealed memory goes, and so do the files that carry the name of a layer's last sandbox, as
     * a start makes them anew. A restore keeps them: a program may have them open. */
    int (*layer_forget)(const struct disk *d, uint32_t slot, uint32_t gen);
    int (*layer_limit)(struct disk *d, uint32_t slot, uint32_t gen, uint64_t bytes,
                       struct disk_rooms *rooms);
    int (*layer_usage)(const struct disk *d, uint32_t slot, uint32_t gen, uint64_t *used_bytes,
                       uint64_t *limit_bytes);
    /* A detached mount of the layer with the ids of a user namespace, holding the directories of
     * disk_layer_dirs; -EOPNOTSUPP: the sandbox mounts a tmpfs itself. */
    int (*layer_tree)(struct disk *d, uint32_t slot, uint32_t gen, int userns_fd);
};

#define DISK_FORGOT      1   /* no failure: there is nothing left to forget */
#define DISK_MAKING_DIRS 32u /* as many starts as there may be at a time, and as many again */

struct disk {
    const struct disk_backend *backend;
    int root_fd, templates_fd, layers_fd, kept_fd, volumes_fd, recycled_fd;
    int view_fd;           /* shown to sandboxes at /sys (sysfs_stub.h); negative: nothing */
    int archiving_fd;      /* layers that are being made of kept ones (contract/archive.h) */
    int making_fd;         /* DISK_MAKING_DIRS directories, in which copies of layers are made */
    bool mounted;          /* by us, at state_dir/disk */
    uint64_t layer_inodes; /* of struct runtime_config */
};

/* The directories of a layer: upper and work directories of the root and of /usr; ends with
 * NULL. */
extern const char *const disk_layer_dirs[];

/* Opens, making and mounting what is missing. Blocks. Logs what was chosen and why. 0 or -errno. */
int disk_open(const struct runtime_config *config, int state_fd, struct disk *out);
void disk_close(struct disk *d);

/* Unmounts what disk_open mounted. 0 or -errno (-EBUSY). */
int disk_unmount(struct disk *d, int state_fd);

/* Space of the whole disk. */
int disk_space(const struct disk *d, uint64_t *total_bytes, uint64_t *free_bytes);

/* Whether writing to it fails for all: -EROFS (the kernel gave it up after an error), -ENOSPC, or
 * 0. */
int disk_trouble(const struct disk *d);

bool disk_is_kept(const struct disk *d, uint32_t number);
bool disk_has_image(const struct disk *d, uint32_t number); /* of what is kept by that number */
bool disk_is_volume(const struct disk *d, uint32_t number);

/* Calls found(arg, slot, gen) for every layer, and for every copy that has not become one. */
int disk_scan(const struct disk *d, void (*found)(void *arg, uint32_t slot, uint32_t gen),
              void *arg);
