/* Units of cay-init's file side: users, paths, entries, listings, removal under attack. */
#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/files/files_meta.h"
#include "agent/fs/fs_entry.h"
#include "agent/fs/fs_json.h"
#include "agent/fs/fs_list.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_remove.h"
#include "skip.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/xattr.h>

static char top[64]; /* a directory of the test's own */
static struct user me;

static int set_up(void **state)
{
    snprintf(top, sizeof(top), "/tmp/cay-agent-fs-XXXXXX");
    me = (struct user){.uid = getuid(), .gid = getgid()};
    return mkdtemp(top) ? 0 : -1;
}

static int remove_all(const char *path)
{
    struct fs_remover *r;
    int more = fs_remover_new(path, &r);

    if (more < 0)
        return more;
    while ((more = fs_remover_step(r)) == 1)
        ;
    fs_remover_free(r);
    return more;
}

static int tear_down(void **state)
{
    return remove_all(top);
}

static const char *in_top(const char *name)
{
    static char paths[8][2 * AGENT_PATH_SIZE];
    static unsigned next;
    char *out = paths[next++ % 8];

    snprintf(out, sizeof(paths[0]), "%s/%s", top, name);
    return out;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* -- users ---------------------------------------------------------------------------------------- */

static const char passwd[] = "# a comment:x:7:7::/:/bin/sh\n"
                             "root:x:0:0:root:/root:/bin/bash\n"
                             "+nis:x:1:1::/:/bin/sh\n"
                             "short:x:5\n"
                             "badid:x:12a:1::/:/bin/sh\n"
                             "hugeid:x:4294967295:1::/:/bin/sh\n"
                             "user:x:1000:1001:,,,:/home/user:/bin/bash\n"
                             "bare:x:1002:1002:::\n"
                             "user:x:2000:2000::/second:/bin/sh";
static const char group[] =
    "root:x:0:\nuser:x:1001:user\nwheel:x:10:root,user\nnot:x:11:user2,xuser\n"
    "bad:x:zz:user\nlast:x:12:root,user";

static void users_are_found_with_their_groups(void **state)
{
    struct user u;

    assert_int_equal(user_find_in(passwd, group, "user", &u), 0);
    assert_int_equal(u.uid, 1000);
    assert_int_equal(u.gid, 1001);
    assert_string_equal(u.home, "/home/user");
    assert_string_equal(u.shell, "/bin/bash");
    assert_int_equal(u.group_count, 3);
    assert_int_equal(u.groups[0], 1001);
    assert_int_equal(u.groups[1], 10);
    assert_int_equal(u.groups[2], 12);
    assert_int_equal(user_find_in(passwd, NULL, "bare", &u), 0);
    assert_string_equal(u.home, "/");
    assert_string_equal(u.shell, "/bin/sh");
}

/* As USER of an image has it: the first line with that number, unless it is a name. */
static void a_number_finds_its_user(void **state)
{
    static const char *const none[] = {"1", "5", "12", "1001", "4294967295", "1000 ", "1000:1001"};
    struct user u;

    assert_int_equal(user_find_in(passwd, group, "1000", &u), 0);
    assert_string_equal(u.name, "user");
    assert_int_equal(u.group_count, 3);
    assert_int_equal(user_find_in(passwd, group, "0", &u), 0);
    assert_string_equal(u.name, "root");
    assert_int_equal(user_find_in("0:x:7:7::/:/bin/sh\nroot:x:0:0::/:/bin/sh", NULL, "0", &u), 0);
    assert_int_equal(u.uid, 7);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        assert_int_equal(user_find_in(passwd, group, none[i], &u), -ENOENT);
}

static void lines_that_are_no_users_are_skipped(void **state)
{
    static const char *const names[] = {"",      "nobody", "+nis", "# a comment", "short",
                                        "badid", "hugeid", "use",  "user:x"};
    struct user u = {.uid = 77};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(user_find_in(passwd, group, names[i], &u), -ENOENT);
    assert_int_equal(u.uid, 77);
}

static void groups_are_bounded(void **state)
{
    CLEANUP_BUF struct buf text;
    struct user u;

    buf_init(&text, 65536);
    for (int i = 0; i < 500; i++)
        assert_int_equal(buf_printf(&text, "g%d:x:%d:user\n", i, 5000 + i), 0);
    assert_int_equal(user_find_in(passwd, text.data, "user", &u), 0);
    assert_int_equal(u.group_count, USER_GROUPS_MAX);
}

/* -- paths ---------------------------------------------------------------------------------------- */

static void paths_resolve_as_upstream_has_it(void **state)
{
    static const struct {
        const char *path, *dir, *want;
    } cases[] = {
        {"", NULL, "/home/user"},        {"", "", "/home/user"},
        {"", "/work", "/work"},          {"", "sub", "/home/user/sub"},
        {"a", "/work", "/home/user/a"},  {"~", "/work", "/home/user"},
        {"~/x", NULL, "/home/user/x"},   {"/a//b/./c/", NULL, "/a/b/c"},
        {"/../..", NULL, "/"},           {"../../../..", NULL, "/"},
        {"../x", NULL, "/home/x"},       {"a/../b", NULL, "/home/user/b"},
        {"/..a/...", NULL, "/..a/..."},  {".", NULL, "/home/user"},
        {"a~b", NULL, "/home/user/a~b"},
    };
    struct user u = {.home = "/home/user", .name = "user"};
    char out[AGENT_PATH_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(path_resolve(cases[i].path, &u, cases[i].dir, out, NULL), ERR_OK);
        assert_string_equal(out, cases[i].want);
    }
    assert_int_equal(path_resolve("~root", &u, NULL, out, NULL), ERR_INVALID);
}

static void paths_that_are_too_long_are_refused(void **state)
{
    struct user u = {.home = "/home/user"};
    char out[AGENT_PATH_SIZE], path[2 * AGENT_PATH_SIZE];

    for (size_t i = 0; i < sizeof(path) - 1; i++)
        path[i] = i % 2 ? 'x' : '/';
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(path_resolve(path, &u, NULL, out, NULL), ERR_INVALID);
    path[AGENT_PATH_SIZE - 1] = '\0';
    assert_int_equal(path_resolve(path, &u, NULL, out, NULL), ERR_OK);
    assert_int_equal(strlen(out), AGENT_PATH_SIZE - 2);
    /* As long, but short when it is clean. */
    memset(path, '/', sizeof(path) - 1);
    assert_int_equal(path_resolve(path, &u, NULL, out, NULL), ERR_OK);
    assert_string_equal(out, "/");
}

static void path_parts(void **state)
{
    char out[AGENT_PATH_SIZE];

    assert_string_equal(path_base("/"), "/");
    assert_string_equal(path_base("/a/bc"), "bc");
    path_dir("/a/bc", out);
    assert_string_equal(out, "/a");
    path_dir("/a", out);
    assert_string_equal(out, "/");
    path_dir("/", out);
    assert_string_equal(out, "/");
    assert_int_equal(path_join("/", "x", out), 0);
    assert_string_equal(out, "/x");
}

/* -- opening -------------------------------------------------------------------------------------- */

static void own_proc_files_and_magic_links_are_refused(void **state)
{
    static const char *const refused[] = {"/proc/self/mem", "/proc/self/environ",
                                          "/proc/thread-self/maps", "/proc/self/task/../auxv"};
    char path[64];
    struct stat st;
    int fd;

    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        assert_int_equal(fs_open_file(refused[i], &st), -EACCES);
    snprintf(path, sizeof(path), "/proc/%d/mem", getpid());
    assert_int_equal(fs_open_file(path, &st), -EACCES);
    assert_int_equal(fs_open_for_write(path, &me, &st), -EACCES);
    snprintf(path, sizeof(path), "/proc/%d/fd/0", getpid());
    assert_int_equal(fs_open_file(path, &st), -ELOOP);
    assert_int_equal(fs_open_file("/proc/self/root/etc/passwd", &st), -ELOOP);
    fd = fs_open_file("/proc/meminfo", &st);
    assert_true(fd >= 0);
    close(fd);
}

static void nothing_that_waits_is_opened(void **state)
{
    struct stat st;

    assert_int_equal(mkfifo(in_top("fifo"), 0666), 0);
    assert_int_equal(fs_open_file(in_top("fifo"), &st), -EINVAL);
    assert_int_equal(fs_open_for_write(in_top("fifo"), &me, &st), -EINVAL);
    assert_int_equal(fs_open_file("/dev/zero", &st), -EINVAL);
    assert_int_equal(fs_open_file(top, &st), -EISDIR);
    assert_int_equal(fs_open_for_write(top, &me, &st), -EISDIR);
}

static size_t entries_of_top(void)
{
    DIR *d = opendir(top);
    size_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Without a descriptor left, no file can be made: as on a disk that is full. */
static void a_replacement_that_cannot_be_made_leaves_the_name(void **state)
{
    struct rlimit all, none;
    struct stat st, before;
    size_t n;
    int fd;

    write_file(in_top("program"), "old");
    assert_int_equal(chmod(in_top("program"), 0750), 0);
    assert_int_equal(symlink("program", in_top("link")), 0);
    assert_int_equal(stat(in_top("program"), &before), 0);
    n = entries_of_top();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    fd = dup(0);
    assert_true(fd >= 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)fd, .rlim_max = all.rlim_max};
    close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    fd = fs_open_for_replacement(in_top("link"), &me, &st);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(fd, -EMFILE);
    assert_true(exists(in_top("program")) && entries_of_top() == n);

    fd = fs_open_for_replacement(in_top("link"), &me, &st); /* control */
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(stat(in_top("program"), &st), 0);
    assert_true(st.st_ino != before.st_ino && st.st_size == 0);
    assert_int_equal(st.st_mode & 07777, 0750);
    assert_int_equal(entries_of_top(), n);
    assert_int_equal(fs_open_for_replacement(in_top("none"), &me, &st), -ENOENT);
}

static void directories_are_made_with_their_parents(void **state)
{
    struct stat st;

    assert_int_equal(fs_make_dirs(in_top("a/b/c"), &me), 0);
    assert_int_equal(lstat(in_top("a/b/c"), &st), 0);
    assert_true(S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0755);
    assert_int_equal(fs_make_dirs(in_top("a/b"), &me), 0);
    write_file(in_top("file"), "");
    assert_int_equal(fs_make_dirs(in_top("file/x"), &me), -ENOTDIR);
    assert_int_equal(symlink("nowhere", in_top("dangling")), 0);
    assert_int_equal(fs_make_dirs(in_top("dangling/x"), &me), -ENOENT);
}

/* The link is not there when the path is looked up, and is when its directory is made: mkdirat(2)
 * stands for a program that puts it there in between. */
static const char *link_target;

int __real_mkdirat(int fd, const char *name, mode_t mode);
int __wrap_mkdirat(int fd, const char *name, mode_t mode);

int __wrap_mkdirat(int fd, const char *name, mode_t mode)
{
    if (link_target && strcmp(name, "flip") == 0)
        assert_int_equal(symlinkat(link_target, fd, name), 0);
    return __real_mkdirat(fd, name, mode);
}

static void directories_are_made_through_no_magic_link(void **state)
{
    char inside[AGENT_PATH_SIZE], made[AGENT_PATH_SIZE];
    struct stat st;

    assert_int_equal(mkdir(in_top("target"), 0755), 0);
    snprintf(inside, sizeof(inside), "/proc/self/root%s", in_top("target"));
    link_target = inside;
    assert_int_equal(fs_make_dirs(in_top("flip/x"), &me), -ELOOP);
    assert_int_equal(lstat(in_top("target/x"), &st), -1);
    assert_int_equal(unlink(in_top("flip")), 0);
    /* The control: any other link is followed. */
    snprintf(made, sizeof(made), "%s", in_top("target"));
    link_target = made;
    assert_int_equal(fs_make_dirs(in_top("flip/x"), &me), 0);
    assert_int_equal(lstat(in_top("target/x"), &st), 0);
    link_target = NULL;
}

static void links_are_evaluated(void **state)
{
    char out[AGENT_PATH_SIZE];

    assert_int_equal(mkdir(in_top("dir"), 0755), 0);
    write_file(in_top("dir/file"), "");
    assert_int_equal(symlink("dir/../dir", in_top("one")), 0);
    assert_int_equal(symlink("one/file", in_top("two")), 0);
    assert_int_equal(symlink("loop", in_top("loop")), 0);
    assert_int_equal(fs_eval_links(in_top("two"), out), 0);
    assert_string_equal(out, in_top("dir/file"));
    assert_int_equal(fs_eval_links(in_top("one/file"), out), 0);
    assert_string_equal(out, in_top("dir/file"));
    assert_int_equal(fs_eval_links(in_top("loop"), out), -ELOOP);
    assert_int_equal(fs_eval_links(in_top("two/x"), out), -ENOTDIR);
    assert_int_equal(fs_eval_links(in_top("none"), out), -ENOENT);
    assert_int_equal(fs_eval_links("/", out), 0);
    assert_string_equal(out, "/");
}

/* -- entries -------------------------------------------------------------------------------------- */

static json_t *entry_of(const char *path)
{
    CLEANUP_USER_NAMES struct user_names names;
    CLEANUP_BUF struct buf out;
    json_t *j;

    user_names_init(&names);
    buf_init(&out, 1u << 20);
    assert_int_equal(fs_entry_append(&out, path, NULL, &names), 0);
    j = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(j);
    return j;
}

static void assert_field(const json_t *j, const char *name, const char *want)
{
    const char *got = json_string_value(json_object_get(j, name));

    if (!want)
        assert_null(got);
    else
        assert_string_equal(got ? got : "(absent)", want);
}

static void entry_of_a_file(void **state)
{
    struct timespec times[2] = {{1, 0}, {1600000000, 120000000}};
    json_t *j;

    write_file(in_top("f\xff\"x"), "12345");
    assert_int_equal(chmod(in_top("f\xff\"x"), 0640), 0);
    assert_int_equal(utimensat(AT_FDCWD, in_top("f\xff\"x"), times, 0), 0);
    j = entry_of(in_top("f\xff\"x"));
    assert_field(j, "name", "f\xef\xbf\xbd\"x");
    assert_field(j, "type", "FILE_TYPE_FILE");
    assert_field(j, "size", "5");
    assert_field(j, "permissions", "-rw-r-----");
    assert_int_equal(json_integer_value(json_object_get(j, "mode")), 0640);
    assert_field(j, "modifiedTime", "2020-09-13T12:26:40.120Z");
    assert_field(j, "symlinkTarget", NULL);
    assert_null(json_object_get(j, "metadata"));
    json_decref(j);
}

static void entry_of_links(void **state)
{
    json_t *j;

    assert_int_equal(mkdir(in_top("d"), 0755), 0);
    assert_int_equal(symlink("d", in_top("good")), 0);
    assert_int_equal(symlink("nowhere", in_top("bad")), 0);
    j = entry_of(in_top("good"));
    assert_field(j, "type", "FILE_TYPE_DIRECTORY");
    assert_field(j, "permissions", "Lrwxrwxrwx");
    assert_field(j, "size", "1");
    assert_field(j, "symlinkTarget", in_top("d"));
    assert_int_equal(json_integer_value(json_object_get(j, "mode")), 0755);
    json_decref(j);
    j = entry_of(in_top("bad"));
    assert_field(j, "type", NULL);
    assert_field(j, "symlinkTarget", in_top("bad"));
    assert_null(json_object_get(j, "mode"));
    json_decref(j);
}

static void permissions_as_go_prints_them(void **state)
{
    static const struct {
        mode_t mode;
        const char *want;
    } cases[] = {
        {S_IFREG | 0644, "-rw-r--r--"},  {S_IFDIR | 01777, "dtrwxrwxrwx"},
        {S_IFREG | 04755, "urwxr-xr-x"}, {S_IFDIR | 02750, "dgrwxr-x---"},
        {S_IFCHR | 0666, "Dcrw-rw-rw-"}, {S_IFBLK | 0660, "Drw-rw----"},
        {S_IFIFO | 0600, "prw-------"},  {S_IFSOCK | 0755, "Srwxr-xr-x"},
        {S_IFLNK | 0777, "Lrwxrwxrwx"},  {S_IFREG, "----------"},
    };
    char out[FS_ENTRY_PERMISSIONS_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fs_entry_permissions(cases[i].mode, out);
        assert_string_equal(out, cases[i].want);
    }
}

static void metadata_is_replaced_and_shown(void **state)
{
    static struct http_head h = {.header_count = 4,
                                 .headers = {{"x-metadata-Author", "me"},
                                             {"X-METADATA-purpose", "a test"},
                                             {"X-Metadata-author", "second"},
                                             {"X-Metadata-", "no key"}}};
    struct files_meta m;
    struct err e;
    json_t *j, *shown;
    int fd;

    write_file(in_top("f"), "x");
    fd = open(in_top("f"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    if (fsetxattr(fd, "user.e2b.old", "1", 1, 0) < 0 && errno == EOPNOTSUPP) {
        close(fd);
        SKIP("a file system without user attributes");
    }
    assert_int_equal(fsetxattr(fd, "user.other", "1", 1, 0), 0);
    assert_int_equal(files_meta_read(&h, &m, &e), ERR_OK);
    assert_int_equal(m.count, 2);
    assert_int_equal(files_meta_write(fd, &m), 0);
    files_meta_free(&m);
    assert_int_equal(fsetxattr(fd, "user.e2b.binary", "\xff\xfe", 2, 0), 0);
    close(fd);
    j = entry_of(in_top("f"));
    shown = json_object_get(j, "metadata");
    assert_int_equal(json_object_size(shown), 2);
    assert_field(shown, "author", "me");
    assert_field(shown, "purpose", "a test");
    json_decref(j);
}

static void metadata_is_bounded(void **state)
{
    static char long_key[400] = "X-Metadata-", long_value[5000];
    struct http_head h = {.header_count = 1, .headers = {{"X-Metadata-k", "\x01"}}};
    struct files_meta m;
    struct err e;

    assert_int_equal(files_meta_read(&h, &m, &e), ERR_INVALID);
    files_meta_free(&m);
    memset(long_key + 11, 'k', FILES_META_KEY_MAX + 1);
    h.headers[0] = (struct http_header){long_key, "v"};
    assert_int_equal(files_meta_read(&h, &m, &e), ERR_INVALID);
    files_meta_free(&m);
    long_key[11 + FILES_META_KEY_MAX] = '\0';
    assert_int_equal(files_meta_read(&h, &m, &e), ERR_OK);
    files_meta_free(&m);
    memset(long_value, 'v', FILES_META_MAX);
    h.headers[0] = (struct http_header){"X-Metadata-k", long_value};
    assert_int_equal(files_meta_read(&h, &m, &e), ERR_INVALID);
    files_meta_free(&m);
}

static void json_strings_are_always_valid(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"plain", "\"plain\""},
        {"q\"b\\n\n\x01\x7f", "\"q\\\"b\\\\n\\n\\u0001\x7f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x9a", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x9a\""},
        {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"a\xe2\x82", "\"a\xef\xbf\xbd\xef\xbf\xbd\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP_BUF struct buf out;

        buf_init(&out, 256);
        assert_int_equal(fs_json_string(&out, cases[i].in, strlen(cases[i].in)), 0);
        assert_string_equal(out.data, cases[i].want);
    }
}

/* -- listing -------------------------------------------------------------------------------------- */

static int list_all(const char *dir, uint32_t depth, size_t piece, struct buf *out)
{
    struct fs_lister *l;
    int r;

    assert_int_equal(fs_lister_new(dir, "/shown", depth, false, &l), 0);
    assert_int_equal(buf_append_str(out, "["), 0);
    while ((r = fs_lister_step(l, piece, out)) == 1)
        ;
    fs_lister_free(l);
    assert_int_equal(buf_append_str(out, "]"), 0);
    return r;
}

static void assert_listed(uint32_t depth, const char *const *want, size_t count)
{
    CLEANUP_BUF struct buf out;
    json_t *j;

    buf_init(&out, 1u << 20);
    assert_int_equal(list_all(top, depth, 1, &out), 0);
    j = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_array_size(j), count);
    for (size_t i = 0; i < count; i++)
        assert_field(json_array_get(j, i), "path", want[i]);
    json_decref(j);
}

static void listing_is_a_lexical_walk(void **state)
{
    static const char *const one[] = {"/shown/a", "/shown/a.b", "/shown/b", "/shown/link"};
    static const char *const two[] = {"/shown/a",   "/shown/a/x", "/shown/a/y",
                                      "/shown/a.b", "/shown/b",   "/shown/link"};
    static const char *const all[] = {"/shown/a",   "/shown/a/x", "/shown/a/x/z", "/shown/a/y",
                                      "/shown/a.b", "/shown/b",   "/shown/link"};

    assert_int_equal(mkdir(in_top("a"), 0755), 0);
    assert_int_equal(mkdir(in_top("a/x"), 0755), 0);
    write_file(in_top("a/x/z"), "");
    write_file(in_top("a/y"), "");
    write_file(in_top("a.b"), "");
    write_file(in_top("b"), "");
    assert_int_equal(symlink("a", in_top("link")), 0);
    assert_listed(1, one, ARRAY_SIZE(one));
    assert_listed(2, two, ARRAY_SIZE(two));
    assert_listed(UINT32_MAX, all, ARRAY_SIZE(all));
}

static void listing_is_bounded(void **state)
{
    struct fs_lister *l;
    char name[32];
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

    for (unsigned i = 0; i <= FS_LIST_ENTRIES_MAX; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        assert_int_equal(mknodat(fd, name, S_IFREG | 0600, 0), 0);
    }
    assert_int_equal(fs_lister_new(top, top, 1, true, &l), 0);
    while ((r = fs_lister_step(l, SIZE_MAX, NULL)) == 1)
        ;
    fs_lister_free(l);
    assert_int_equal(r, -EMSGSIZE);
    assert_int_equal(unlinkat(fd, "f0", 0), 0);
    assert_int_equal(fs_lister_new(top, top, 1, true, &l), 0);
    while ((r = fs_lister_step(l, SIZE_MAX, NULL)) == 1)
        ;
    fs_lister_free(l);
    assert_int_equal(r, 0);
    close(fd);
}

/* -- removal -------------------------------------------------------------------------------------- */

static void removal_keeps_to_its_tree(void **state)
{
    assert_int_equal(mkdir(in_top("keep"), 0755), 0);
    write_file(in_top("keep/f"), "");
    assert_int_equal(fs_make_dirs(in_top("t/a/b"), &me), 0);
    write_file(in_top("t/a/f"), "");
    assert_int_equal(symlink(in_top("keep"), in_top("t/a/b/link")), 0);
    assert_int_equal(symlink(in_top("t"), in_top("to_t")), 0);
    assert_int_equal(remove_all(in_top("to_t")), 0);
    assert_true(exists(in_top("t/a/f")));
    assert_int_equal(remove_all(in_top("t")), 0);
    assert_false(exists(in_top("t")));
    assert_true(exists(in_top("keep/f")));
    assert_int_equal(remove_all(in_top("t")), 0);
    assert_int_equal(remove_all(in_top("none/none")), 0);
    assert_int_equal(remove_all("/"), -EBUSY);
}

static int count_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Deeper than any path, with entries beside the way down at each level. */
static void removal_of_a_deep_tree_holds_few_descriptors(void **state)
{
    struct fs_remover *r;
    int before, most = 0, more, fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < 3000; i++) {
        int next;

        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        assert_int_equal(mknodat(fd, "c", S_IFREG | 0600, 0), 0);
        assert_int_equal(mkdirat(fd, "e", 0755), 0);
        next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
    }
    close(fd);
    before = count_descriptors();
    assert_int_equal(fs_remover_new(in_top("d"), &r), 0);
    while ((more = fs_remover_step(r)) == 1)
        most = MAX(most, count_descriptors() - before);
    fs_remover_free(r);
    assert_int_equal(more, 0);
    assert_true(most <= FS_REMOVE_FRAMES + 1);
    assert_false(exists(in_top("d")));
    assert_int_equal(count_descriptors(), before);
}

struct attack {
    bool stop;
    unsigned swaps;
};

/* Swaps a directory of the tree with a link to what must stay, as fast as it can. */
static void *swap_forever(void *arg)
{
    struct attack *a = arg;
    char victim[AGENT_PATH_SIZE], link[AGENT_PATH_SIZE];

    snprintf(victim, sizeof(victim), "%s/t/v", top);
    snprintf(link, sizeof(link), "%s/link", top);
    while (!__atomic_load_n(&a->stop, __ATOMIC_RELAXED))
        if (renameat2(AT_FDCWD, victim, AT_FDCWD, link, RENAME_EXCHANGE) == 0)
            __atomic_add_fetch(&a->swaps, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void removal_is_not_led_out_by_a_swapped_link(void **state)
{
    assert_int_equal(mkdir(in_top("keep"), 0755), 0);
    write_file(in_top("keep/f"), "");
    for (int round = 0; round < 60; round++) {
        struct attack a = {0};
        pthread_t thread;
        char name[32];

        assert_int_equal(fs_make_dirs(in_top("t/v"), &me), 0);
        for (int i = 0; i < 40; i++) {
            snprintf(name, sizeof(name), "t/v/f%d", i);
            write_file(in_top(name), "");
        }
        assert_int_equal(symlink("keep", in_top("link")), 0);
        assert_int_equal(pthread_create(&thread, NULL, swap_forever, &a), 0);
        while (__atomic_load_n(&a.swaps, __ATOMIC_RELAXED) == 0)
            sched_yield(); /* it is at it before the removal begins */
        (void)!remove_all(in_top("t"));
        __atomic_store_n(&a.stop, true, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        assert_true(exists(in_top("keep/f")));
        assert_int_equal(remove_all(in_top("t")), 0);
        assert_int_equal(remove_all(in_top("link")), 0);
    }
}

/* A directory in the middle is moved out of the tree while the removal is deeper than it holds
 * open: files where it is now must stay. */
static void removal_does_not_follow_a_directory_that_moved_away(void **state)
{
    struct fs_remover *r;
    char deep[AGENT_PATH_SIZE] = "t";
    int more, steps = 0;

    for (int i = 0; i < 3 * FS_REMOVE_FRAMES; i++)
        strcat(deep, "/d");
    assert_int_equal(fs_make_dirs(in_top(deep), &me), 0);
    for (int i = 0; i < 20000; i++) {
        char name[AGENT_PATH_SIZE + 32];

        snprintf(name, sizeof(name), "%s/f%d", deep, i);
        assert_int_equal(mknod(in_top(name), S_IFREG | 0600, 0), 0);
    }
    assert_int_equal(fs_make_dirs(in_top("elsewhere"), &me), 0);
    write_file(in_top("elsewhere/keep"), "");
    assert_int_equal(fs_remover_new(in_top("t"), &r), 0);
    while ((more = fs_remover_step(r)) == 1)
        if (steps++ == 0)
            assert_int_equal(rename(in_top("t/d/d"), in_top("elsewhere/d")), 0);
    fs_remover_free(r);
    assert_true(steps > 1);
    assert_int_equal(more, -EBUSY);
    assert_true(exists(in_top("elsewhere/keep")));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(users_are_found_with_their_groups),
        CASE(a_number_finds_its_user),
        CASE(lines_that_are_no_users_are_skipped),
        CASE(groups_are_bounded),
        CASE(paths_resolve_as_upstream_has_it),
        CASE(paths_that_are_too_long_are_refused),
        CASE(path_parts),
        CASE(own_proc_files_and_magic_links_are_refused),
        CASE(nothing_that_waits_is_opened),
        CASE(a_replacement_that_cannot_be_made_leaves_the_name),
        CASE(directories_are_made_with_their_parents),
        CASE(directories_are_made_through_no_magic_link),
        CASE(links_are_evaluated),
        CASE(entry_of_a_file),
        CASE(entry_of_links),
        CASE(permissions_as_go_prints_them),
        CASE(metadata_is_replaced_and_shown),
        CASE(metadata_is_bounded),
        CASE(json_strings_are_always_valid),
        CASE(listing_is_a_lexical_walk),
        CASE(listing_is_bounded),
        CASE(removal_keeps_to_its_tree),
        CASE(removal_of_a_deep_tree_holds_few_descriptors),
        CASE(removal_is_not_led_out_by_a_swapped_link),
        CASE(removal_does_not_follow_a_directory_that_moved_away),
    };

    return cmocka_run_group_tests_name("agent_fs", tests, NULL, NULL);
}
