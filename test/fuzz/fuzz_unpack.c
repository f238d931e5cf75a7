/* A layer of an image, over a tree that has a folder, a file and links out of it: whatever it
 * says, a folder beside the tree stays as it is. Names that lead out stand in the corpus. */
#include "fuzz.h"
#include "unpack/layer.h"
#include "unpack/tree_entry.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/cay-fuzz-XXXXXX";
static int base_fd = -1;

static void clean_up(void)
{
    struct tree_entry all = {.dir_fd = base_fd, .name = "."};

    (void)!tree_entry_empty(&all);
    (void)!rmdir(base);
}

static int make_tree(void)
{
    struct tree_entry tree;

    if (base_fd < 0) {
        FUZZ_CHECK(mkdtemp(base));
        base_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        FUZZ_CHECK(base_fd >= 0 && mkdirat(base_fd, "outside", 0700) == 0);
        atexit(clean_up);
    }
    tree = (struct tree_entry){.dir_fd = base_fd, .name = "tree"};
    FUZZ_CHECK(tree_entry_remove(&tree) == 0 && mkdirat(base_fd, "tree", 0700) == 0);
    FUZZ_CHECK(mkdirat(base_fd, "tree/d", 0700) == 0);
    FUZZ_CHECK(symlinkat("../outside", base_fd, "tree/out") == 0);
    FUZZ_CHECK(symlinkat("../../outside", base_fd, "tree/d/out") == 0);
    return openat(base_fd, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int layer = memfd_create("layer", MFD_CLOEXEC);
    struct unpack u = {.root_fd = make_tree()};
    struct err e = {.code = ERR_OK};
    struct stat st;

    FUZZ_CHECK(layer >= 0 && u.root_fd >= 0 && write(layer, data, size) == (ssize_t)size);
    if (layer_unpack(&u, layer, false, &e) != ERR_OK)
        FUZZ_CHECK(e.text[0]);
    FUZZ_CHECK(u.entries <= UNPACK_ENTRIES_MAX + 1u && u.bytes <= UNPACK_BYTES_MAX);
    FUZZ_CHECK(unlinkat(base_fd, "outside", AT_REMOVEDIR) == 0); /* as it was: there, and empty */
    FUZZ_CHECK(mkdirat(base_fd, "outside", 0700) == 0);
    FUZZ_CHECK(fstatat(base_fd, "tree", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode));
    close(layer);
    close(u.root_fd);
    return 0;
}
