/* Sealed files: the bytes written come back, and nothing else does, wherever a bit was changed. */
#include "base/io.h"
#include "seal/openers.h"
#include "seal/pack.h"
#include "seal/seal.h"
#include "seal/seal_walls.h"
#include "skip.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PIECE       SEAL_PIECE_BYTES
#define SEALED      (SEAL_PIECE_BYTES + SEAL_TAG_BYTES)
#define HEADER      sizeof(struct seal_header)
#define NO_MAXIMUM  UINT64_MAX
#define LAST        5u /* the number of the last piece of the longest stream */
#define LENGTHS_MAX ((LAST + 1) * (size_t)SEAL_PIECE_BYTES)

static const struct seal_secret secret = {.key = "a key of the host's", .label = "whose"};
static struct seal seal;
static unsigned char plain[LENGTHS_MAX + 1], got[LENGTHS_MAX + 1];
static bool to_a_file; /* a stream is read so: threads open the pieces of a long one */

static int new_file(void)
{
    int fd = memfd_create("sealed", MFD_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static int set_up(void **state)
{
    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (unsigned char)(i * 7 + i / 251);
    return 0;
}

static int begin_to_a_file(void **state)
{
    to_a_file = true;
    return 0;
}

static int end_to_a_file(void **state)
{
    to_a_file = false;
    return 0;
}

static int seal_plain(size_t n)
{
    int fd = new_file();

    assert_int_equal(seal_write_begin(&seal, fd, &secret, NO_MAXIMUM), 0);
    /* in unequal parts */
    for (size_t at = 0, part = 1; at < n; at += part, part = part * 3 % 9973 + 1)
        assert_int_equal(seal_write(&seal, plain + at, part < n - at ? part : (part = n - at)), 0);
    assert_int_equal(seal_write_end(&seal), 0);
    seal_forget(&seal);
    return fd;
}

static int read_by_a_file(size_t n)
{
    CLEANUP_CLOSE int to = new_file();
    bool of_file;
    int rc = seal_read_to(&seal, to, n, &of_file);

    assert_false(of_file);
    if (rc == 0)
        assert_int_equal(pread(to, got, n, 0), n);
    return rc;
}

/* The whole of it, in one read and its end. */
static int open_sealed(int fd, size_t n, const struct seal_secret *with, uint64_t *number)
{
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    int rc = seal_read_begin(&seal, fd, with);
    if (rc == 0)
        rc = to_a_file ? read_by_a_file(n) : seal_read(&seal, got, n);
    if (rc == 0)
        rc = seal_read_end(&seal);
    *number = seal.number;
    seal_forget(&seal);
    return rc;
}

static void what_was_sealed_comes_back(void **state)
{
    static const size_t lengths[] = {
        0,         1,         PIECE - 1,       PIECE,           PIECE + 1,  2 * PIECE - 1,
        2 * PIECE, 4 * PIECE, 4 * PIECE + 100, LENGTHS_MAX - 1, LENGTHS_MAX};
    uint64_t number;

    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        int fd = seal_plain(lengths[i]);
        size_t pieces = lengths[i] ? (lengths[i] + PIECE - 1) / PIECE : 1;

        memset(got, 0, sizeof(got));
        assert_int_equal(lseek(fd, 0, SEEK_END), HEADER + lengths[i] + pieces * SEAL_TAG_BYTES);
        assert_int_equal(open_sealed(fd, lengths[i], &secret, &number), 0);
        assert_memory_equal(got, plain, lengths[i]);
        /* one byte more is not there, one less is not the end */
        assert_int_equal(open_sealed(fd, lengths[i] + 1, &secret, &number), -ENODATA);
        if (lengths[i])
            assert_int_equal(open_sealed(fd, lengths[i] - 1, &secret, &number), -EBADMSG);
        close(fd);
    }
}

static void nothing_of_it_is_readable(void **state)
{
    static const char text[] = "a word of the tenant's memory";
    unsigned char file[4096];
    int fd = new_file();

    assert_int_equal(seal_write_begin(&seal, fd, &secret, NO_MAXIMUM), 0);
    assert_int_equal(seal_write(&seal, text, sizeof(text)), 0);
    assert_int_equal(seal_write_end(&seal), 0);
    seal_forget(&seal);
    ssize_t n = pread(fd, file, sizeof(file), 0);
    assert_true(n > (ssize_t)sizeof(text));
    assert_null(memmem(file, (size_t)n, text, 8));
    assert_null(memmem(file, (size_t)n, secret.key, 8));
    assert_non_null(
        memmem(file, (size_t)n, secret.label, 5)); /* control: the label is not secret */
    close(fd);
}

static void flip(int fd, off_t at, unsigned bit)
{
    unsigned char byte;

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* Flipped, refused with its place, and flipped back. */
static void refuse_flipped(int fd, size_t n, off_t at, unsigned bit)
{
    uint64_t number = 99,
             expected = at < (off_t)HEADER ? 0 : (uint64_t)(at - (off_t)HEADER) / SEALED;

    flip(fd, at, bit);
    int rc = open_sealed(fd, n, &secret, &number);
    if (rc != -EBADMSG || number != expected)
        fail_msg("bit %u of byte %lld: %d at piece %llu", bit, (long long)at, rc,
                 (unsigned long long)number);
    flip(fd, at, bit);
}

static void each_flipped_bit_is_refused(void **state)
{
    uint64_t number;
    int fd = seal_plain(100);

    for (off_t at = 0; at < (off_t)HEADER + 100 + SEAL_TAG_BYTES; at++)
        for (unsigned bit = 0; bit < 8; bit++)
            refuse_flipped(fd, 100, at, bit);
    assert_int_equal(open_sealed(fd, 100, &secret, &number), 0);
    close(fd);
}

static void a_flipped_bit_in_each_page_is_refused_with_its_piece(void **state)
{
    uint64_t number;
    int fd = seal_plain(LENGTHS_MAX);
    off_t size = lseek(fd, 0, SEEK_END);

    for (off_t at = 0; at < size; at += 4096)
        refuse_flipped(fd, LENGTHS_MAX, MIN(at + at / 4096 % 4096, size - 1),
                       (unsigned)(at / 4096 % 8));
    for (uint64_t piece = 1; piece <= LAST; piece++) { /* both sides of where pieces meet */
        refuse_flipped(fd, LENGTHS_MAX, (off_t)seal_piece_at(piece) - 1, 0);
        refuse_flipped(fd, LENGTHS_MAX, (off_t)seal_piece_at(piece), 0);
    }
    assert_int_equal(open_sealed(fd, LENGTHS_MAX, &secret, &number), 0);
    close(fd);
}

static void a_file_that_was_cut_or_continued_is_refused(void **state)
{
    uint64_t number;
    int fd = seal_plain(LENGTHS_MAX);
    off_t size = lseek(fd, 0, SEEK_END);
    const off_t cuts[] = {size - 1,
                          (off_t)seal_piece_at(LAST) + SEAL_TAG_BYTES,
                          (off_t)seal_piece_at(LAST) + 1,
                          (off_t)seal_piece_at(LAST),
                          (off_t)seal_piece_at(2),
                          (off_t)seal_piece_at(1),
                          HEADER,
                          HEADER - 1,
                          0};

    assert_int_equal(ftruncate(fd, size + 1), 0);
    assert_int_equal(open_sealed(fd, LENGTHS_MAX, &secret, &number), -EBADMSG);
    assert_int_equal(number, LAST);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(open_sealed(fd, LENGTHS_MAX, &secret, &number), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
        assert_int_equal(ftruncate(fd, cuts[i]), 0);
        /* also by a reader that wants no more than what is left */
        for (size_t pieces = 0; pieces <= LAST + 1; pieces++)
            assert_int_equal(open_sealed(fd, pieces * PIECE, &secret, &number), -EBADMSG);
    }
    close(fd);
}

static void move_piece(int from_fd, uint64_t from, int to_fd, uint64_t to)
{
    static unsigned char piece[SEALED];

    assert_int_equal(pread(from_fd, piece, sizeof(piece), (off_t)seal_piece_at(from)),
                     sizeof(piece));
    assert_int_equal(pwrite(to_fd, piece, sizeof(piece), (off_t)seal_piece_at(to)), sizeof(piece));
}

static void a_piece_of_another_place_or_file_is_refused(void **state)
{
    static const struct {
        bool other;
        uint64_t from, to;
    } moves[] = {{false, 1, 0}, {false, 0, 1}, {false, 1, 2},     {false, 2, 1},
                 {true, 0, 0},  {true, 1, 1},  {true, LAST, LAST}};
    uint64_t number;

    for (size_t i = 0; i < ARRAY_SIZE(moves); i++) {
        int fd = seal_plain(LENGTHS_MAX), other = seal_plain(LENGTHS_MAX);

        move_piece(moves[i].other ? other : fd, moves[i].from, fd, moves[i].to);
        assert_int_equal(open_sealed(fd, LENGTHS_MAX, &secret, &number), -EBADMSG);
        assert_int_equal(number, moves[i].to);
        close(fd);
        close(other);
    }
}

static void another_key_and_another_label_are_refused(void **state)
{
    struct seal_secret other = secret;
    int fd = seal_plain(100);
    uint64_t number;

    for (size_t i = 0; i < SEAL_LABEL_BYTES; i++) {
        other.label[i] ^= 1;
        assert_int_equal(open_sealed(fd, 100, &other, &number), -ESTALE);
        other.label[i] ^= 1;
    }
    assert_int_equal(open_sealed(fd, 100, &other, &number), 0);
    other.key[SEAL_KEY_BYTES - 1] ^= 1;
    assert_int_equal(open_sealed(fd, 100, &other, &number), -EBADMSG);
    close(fd);
}

/* Of a file that is whole, but not with this version's header: made with the right key. */
static void no_file_is_larger_than_it_may_be(void **state)
{
    const size_t whole = HEADER + 2 * PIECE + 2 * SEAL_TAG_BYTES;
    static const size_t least[] = {0, HEADER - 1, HEADER, HEADER + SEALED - 1, HEADER + SEALED, 1};

    for (size_t i = 0; i < ARRAY_SIZE(least) + 2; i++) {
        size_t most = i < ARRAY_SIZE(least) ? least[i] : whole - (i - ARRAY_SIZE(least));
        int fd = new_file();
        int rc = seal_write_begin(&seal, fd, &secret, most);

        if (rc == 0)
            rc = seal_write(&seal, plain, 2 * PIECE);
        if (rc == 0)
            rc = seal_write_end(&seal);
        seal_forget(&seal);
        assert_int_equal(rc, most == whole ? 0 : -EFBIG);
        assert_true((size_t)lseek(fd, 0, SEEK_END) <= most);
        close(fd);
    }
}

/* -- directories ------------------------------------------------------------------------------- */

static char dirs[2][64];
static int from_fd, to_fd;

static int make_dirs(void **state)
{
    for (int i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof(dirs[i]), "/tmp/cay-test-seal-XXXXXX");
        assert_non_null(mkdtemp(dirs[i]));
    }
    from_fd = open(dirs[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    to_fd = open(dirs[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(from_fd >= 0 && to_fd >= 0);
    return 0;
}

static bool remove_one(void *arg, const char *name)
{
    assert_int_equal(unlinkat(*(int *)arg, name, 0), 0);
    return true;
}

static int remove_dirs(void **state)
{
    io_each_name_at(from_fd, ".", remove_one, &from_fd);
    io_each_name_at(to_fd, ".", remove_one, &to_fd);
    close(from_fd);
    close(to_fd);
    return rmdir(dirs[0]) | rmdir(dirs[1]);
}

static void put_file(const char *name, size_t n)
{
    assert_int_equal(io_create_file_at(from_fd, name, plain, n, 0644), 0);
}

static bool count_one(void *arg, const char *name)
{
    ++*(int *)arg;
    return true;
}

static int names_in(int fd)
{
    int n = 0;

    assert_int_equal(io_each_name_at(fd, ".", count_one, &n), 0);
    return n;
}

/* from_fd's files as a sealed file. */
static int pack(int fd, uint64_t most, struct pack_why *why)
{
    int rc = seal_write_begin(&seal, fd, &secret, most);

    assert_int_equal(rc, 0);
    rc = pack_write(&seal, from_fd, why);
    if (rc == 0)
        rc = seal_write_end(&seal);
    seal_forget(&seal);
    return rc;
}

static int unpack(int fd, struct pack_why *why)
{
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    int rc = seal_read_begin(&seal, fd, &secret);

    if (rc == 0)
        rc = pack_read(&seal, to_fd, why);
    seal_forget(&seal);
    return rc;
}

static void files_of_a_directory_come_back(void **state)
{
    static const struct {
        const char *name;
        size_t size;
    } files[] = {{"core-1.img", 0}, {"pages-1.img", LENGTHS_MAX}, {"a", 1}, {"stats-dump", PIECE}};
    struct pack_why why;
    int fd = new_file();
    struct stat st;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        put_file(files[i].name, files[i].size);
    assert_int_equal(pack(fd, NO_MAXIMUM, &why), 0);
    assert_int_equal(unpack(fd, &why), 0);
    assert_int_equal(names_in(to_fd), ARRAY_SIZE(files));
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        CLEANUP_CLOSE int one = openat(to_fd, files[i].name, O_RDONLY | O_CLOEXEC);

        assert_int_equal(fstat(one, &st), 0);
        assert_int_equal(st.st_size, files[i].size);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(io_read_full(one, got, files[i].size), 0);
        assert_memory_equal(got, plain, files[i].size);
    }
    /* into one that has files already: refused, and those stay */
    assert_int_equal(unpack(fd, &why), -ENOTEMPTY);
    assert_int_equal(names_in(to_fd), ARRAY_SIZE(files));
    close(fd);
}

static void of_a_damaged_image_no_file_is_left(void **state)
{
    struct pack_why why = {""};
    int fd = new_file();

    put_file("pages-1.img", LENGTHS_MAX);
    put_file("pages-2.img", LENGTHS_MAX);
    assert_int_equal(pack(fd, NO_MAXIMUM, &why), 0);
    flip(fd, (off_t)seal_piece_at(4) + 17, 3);
    assert_int_equal(unpack(fd, &why), -EBADMSG);
    assert_string_equal(why.text, "the image is damaged: piece 4, from byte 262416 on");
    assert_int_equal(names_in(to_fd), 0);
    flip(fd, (off_t)seal_piece_at(4) + 17, 3);
    assert_int_equal(unpack(fd, &why), 0); /* control */
    assert_int_equal(names_in(to_fd), 2);
    close(fd);
}

static void refuse_to_pack(const char *name, int expected, const char *part)
{
    struct pack_why why = {""};
    int fd = new_file();

    assert_int_equal(pack(fd, NO_MAXIMUM, &why), expected);
    assert_non_null(strstr(why.text, part));
    assert_int_equal(unlinkat(from_fd, name, 0), 0);
    assert_int_equal(pack(fd, NO_MAXIMUM, &why), 0); /* control: it was that file */
    close(fd);
}

static void only_plain_files_are_sealed(void **state)
{
    put_file("good", 10);
    assert_int_equal(symlinkat("/etc/passwd", from_fd, "link"), 0);
    refuse_to_pack("link", -ELOOP, "opening link");
    assert_int_equal(mkfifoat(from_fd, "fifo", 0600), 0);
    refuse_to_pack("fifo", -EINVAL, "fifo is no regular file");
    put_file(".hidden", 1);
    refuse_to_pack(".hidden", -EINVAL, "a name that no image has");
    put_file("new\nline", 1);
    refuse_to_pack("new\nline", -EINVAL, "a name that no image has");
}

static void names_are_plain(void **state)
{
    static const char *const good[] = {"a", "core-1.img", "tcp-stream-1446196.img", "A_b.c"};
    static const char *const bad[] = {"", ".", "..", ".a", "a.", "a/b", "a b", "\xc3\xa4", "a\n"};
    char longest[PACK_NAME_MAX + 2];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(pack_is_name(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(pack_is_name(bad[i]));
    memset(longest, 'a', sizeof(longest));
    longest[PACK_NAME_MAX] = '\0';
    assert_true(pack_is_name(longest));
    longest[PACK_NAME_MAX] = 'a';
    longest[PACK_NAME_MAX + 1] = '\0';
    assert_false(pack_is_name(longest));
}

static void an_image_over_its_maximum_is_refused(void **state)
{
    struct pack_why why = {""};
    int fd = new_file();

    put_file("pages-1.img", 2 * PIECE);
    assert_int_equal(pack(fd, 2 * PIECE, &why), -EFBIG);
    assert_non_null(strstr(why.text, "larger than it may be"));
    close(fd);
}

/* A stream that the key's holder made, but not from files: the reader looks all the same. */
static void heads_that_no_directory_gave_are_refused(void **state)
{
    static const struct {
        struct pack_head head;
        int expected;
    } cases[] = {
        {{.size = 0, .name = ""}, 0}, /* control: no file at all */
        {{.size = 1, .name = ""}, -EINVAL},  {{.size = 0, .name = "../a"}, -EINVAL},
        {{.size = 0, .name = "."}, -EINVAL}, {{.size = 1, .name = "a"}, -EBADMSG},
    };
    struct pack_why why;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int fd = new_file();

        assert_int_equal(seal_write_begin(&seal, fd, &secret, NO_MAXIMUM), 0);
        assert_int_equal(seal_write(&seal, &cases[i].head, sizeof(cases[i].head)), 0);
        assert_int_equal(seal_write_end(&seal), 0);
        seal_forget(&seal);
        assert_int_equal(unpack(fd, &why), cases[i].expected);
        assert_int_equal(names_in(to_fd), 0);
        close(fd);
    }
}

/* -- walls ------------------------------------------------------------------------------------- */

/* Each is possible where the walls are not, and asked for once on either side. */
static unsigned what_is_possible(void)
{
    unsigned bits = 0;
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

    bits |= fd >= 0 ? 1u : 0;
    fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    bits |= fd >= 0 ? 2u : 0;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    bits |= fd >= 0 ? 4u : 0;
    bits |= kill(getppid(), 0) == 0 ? 8u : 0;
    fd = openat(from_fd, "../..", O_PATH | O_CLOEXEC);
    bits |= fd >= 0 && faccessat(fd, "etc", F_OK, 0) == 0 ? 32u : 0;
    bits |= getuid() == 0 ? 64u : 0;
    bits |= setresuid((uid_t)-1, 1, (uid_t)-1) == 0 ? 16u : 0;
    return bits;
}

static unsigned in_a_child(bool walls)
{
    int tube[2], status;
    unsigned bits = 0;
    pid_t pid;

    assert_int_equal(pipe(tube), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char *what;

        if (walls && seal_walls_enter(from_fd, 12345, UINT64_C(1) << 30, &what) < 0)
            _exit(1);
        bits = what_is_possible() | 128u;
        _exit(write(tube[1], &bits, sizeof(bits)) == sizeof(bits) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(tube[0], &bits, sizeof(bits)), sizeof(bits));
    close(tube[0]);
    close(tube[1]);
    return bits;
}

static void behind_its_walls_is_nothing_but_the_directory(void **state)
{
    const char *what;

    NEEDS_ROOT;
    assert_int_equal(in_a_child(false), 255);
    assert_int_equal(in_a_child(true), 128);
    assert_int_equal(seal_walls_enter(-1, 12345, 1, &what), -EBADF);
}

/* -- by threads -------------------------------------------------------------------------------- */

#define NUMBERS 1000

struct tried {
    pthread_t thread;     /* 0: it had no number */
    unsigned char *began; /* how often each number was */
    uint64_t fails[2];    /* numbers; NUMBERS: none */
};

static int try_one(void *arg, uint64_t number)
{
    struct tried *t = arg;

    t->thread = pthread_self();
    t->began[number]++;
    if (number == t->fails[0] || number == t->fails[1])
        return number == t->fails[0] ? -EIO : -ENOSPC;
    sched_yield();
    return 0;
}

static int run_openers(struct tried t, unsigned n, uint64_t *failed)
{
    struct tried all[OPENERS_MAX];
    void *args[OPENERS_MAX];

    for (unsigned i = 0; i < n; i++) {
        all[i] = t;
        args[i] = &all[i];
    }
    int rc = openers_run(try_one, args, n, 10, NUMBERS, failed);
    /* The others may have taken all numbers before this thread has one. */
    assert_true(!all[0].thread || pthread_equal(all[0].thread, pthread_self()));
    return rc;
}

static void each_number_is_worked_on_once(void **state)
{
    unsigned char began[NUMBERS];
    uint64_t failed;

    for (unsigned n = 1; n <= OPENERS_MAX; n++) {
        memset(began, 0, sizeof(began));
        struct tried t = {.began = began, .fails = {NUMBERS, NUMBERS}};
        assert_int_equal(run_openers(t, n, &failed), 0);
        for (unsigned i = 0; i < NUMBERS; i++)
            assert_int_equal(began[i], i >= 10);
    }
}

static void the_lowest_failure_is_told_and_no_more_is_begun(void **state)
{
    unsigned char began[NUMBERS];
    uint64_t failed;

    for (int round = 0; round < 100; round++) {
        memset(began, 0, sizeof(began));
        struct tried t = {.began = began, .fails = {50, 51}};
        assert_int_equal(run_openers(t, OPENERS_MAX, &failed), -EIO);
        assert_int_equal(failed, 50);
        for (unsigned i = 10; i <= 50; i++)
            assert_int_equal(began[i], 1);
    }
    struct tried t = {.began = began, .fails = {50, 51}};
    memset(began, 0, sizeof(began));
    assert_int_equal(run_openers(t, 1, &failed), -EIO);
    assert_int_equal(began[51], 0); /* by itself alone it begins none after it */
}

static void of_several_damaged_pieces_the_first_is_told(void **state)
{
    uint64_t number;
    int fd = seal_plain(LENGTHS_MAX);

    for (uint64_t piece = LAST; piece > 0; piece--) {
        flip(fd, (off_t)seal_piece_at(piece) + 5, 0);
        for (int round = 0; round < 20; round++) {
            assert_int_equal(open_sealed(fd, LENGTHS_MAX, &secret, &number), -EBADMSG);
            assert_int_equal(number, piece);
        }
    }
    close(fd);
}

static void a_stream_goes_on_behind_what_went_to_a_file(void **state)
{
    static const size_t lengths[] = {0, 1, PIECE, 4 * PIECE, 4 * PIECE + 1, 5 * PIECE - 1};
    bool of_file;
    int fd = seal_plain(LENGTHS_MAX);

    for (size_t before = 0; before <= PIECE; before += PIECE / 2)
        for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
            CLEANUP_CLOSE int to = new_file();
            size_t n = lengths[i], rest = LENGTHS_MAX - before - n;

            assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
            assert_int_equal(seal_read_begin(&seal, fd, &secret), 0);
            assert_int_equal(seal_read(&seal, got, before), 0);
            assert_int_equal(seal_read_to(&seal, to, n, &of_file), 0);
            assert_int_equal(pread(to, got + before, n + 1, 0), n);
            assert_int_equal(seal_read(&seal, got + before + n, rest), 0);
            assert_int_equal(seal_read_end(&seal), 0);
            assert_memory_equal(got, plain, LENGTHS_MAX);
            seal_forget(&seal);
        }
    close(fd);
}

static void a_file_that_cannot_be_written_is_told_apart(void **state)
{
    int fd = seal_plain(LENGTHS_MAX);
    CLEANUP_CLOSE int to = open("/dev/full", O_WRONLY | O_CLOEXEC);

    for (size_t pieces = 1; pieces <= LAST + 1; pieces += LAST) {
        bool of_file = false;

        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(seal_read_begin(&seal, fd, &secret), 0);
        assert_int_equal(seal_read_to(&seal, to, pieces * PIECE, &of_file), -ENOSPC);
        assert_true(of_file);
        assert_int_equal(seal.number, 0);
        seal_forget(&seal);
    }
    close(fd);
}

int main(void)
{
#define IN_DIRS(f) cmocka_unit_test_setup_teardown(f, make_dirs, remove_dirs)
#define TO_A_FILE(f)                                              \
    {                                                             \
        "to a file: " #f, f, begin_to_a_file, end_to_a_file, NULL \
    }
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sealed_comes_back),
        cmocka_unit_test(nothing_of_it_is_readable),
        cmocka_unit_test(each_flipped_bit_is_refused),
        cmocka_unit_test(a_flipped_bit_in_each_page_is_refused_with_its_piece),
        cmocka_unit_test(a_file_that_was_cut_or_continued_is_refused),
        cmocka_unit_test(a_piece_of_another_place_or_file_is_refused),
        cmocka_unit_test(another_key_and_another_label_are_refused),
        cmocka_unit_test(no_file_is_larger_than_it_may_be),
        IN_DIRS(files_of_a_directory_come_back),
        IN_DIRS(of_a_damaged_image_no_file_is_left),
        IN_DIRS(only_plain_files_are_sealed),
        cmocka_unit_test(names_are_plain),
        IN_DIRS(an_image_over_its_maximum_is_refused),
        IN_DIRS(heads_that_no_directory_gave_are_refused),
        IN_DIRS(behind_its_walls_is_nothing_but_the_directory),
        TO_A_FILE(what_was_sealed_comes_back),
        TO_A_FILE(each_flipped_bit_is_refused),
        TO_A_FILE(a_flipped_bit_in_each_page_is_refused_with_its_piece),
        TO_A_FILE(a_file_that_was_cut_or_continued_is_refused),
        TO_A_FILE(a_piece_of_another_place_or_file_is_refused),
        TO_A_FILE(another_key_and_another_label_are_refused),
        TO_A_FILE(of_several_damaged_pieces_the_first_is_told),
        cmocka_unit_test(each_number_is_worked_on_once),
        cmocka_unit_test(the_lowest_failure_is_told_and_no_more_is_begun),
        cmocka_unit_test(a_stream_goes_on_behind_what_went_to_a_file),
        cmocka_unit_test(a_file_that_cannot_be_written_is_told_apart),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
