#include "base/util.h"
#include "cayd/confine.h"
#include "cayd/key_owner.h"
#include "cayd/mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

/* -- the system call filter --------------------------------------------------------------------- */

static void *nothing(void *arg)
{
    return arg;
}

static bool is_refused(long rc)
{
    return rc == -1 && (errno == EPERM || errno == ENOSYS);
}

/* In a child of its own: 0, or the number of the check that failed. */
static int confined(void)
{
    static char name[] = "/bin/true";
    char *const argv[] = {name, NULL};
    pthread_t thread;
    int fd;

    if (confine_self() < 0)
        return 1;
    if (!is_refused(execve(name, argv, NULL)))
        return 2;
    if (!is_refused(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) || !is_refused(syscall(SYS_fork)) ||
        !is_refused(syscall(SYS_vfork)) || !is_refused(syscall(SYS_clone3, NULL, 0)))
        return 3;
    if (!is_refused(socket(AF_INET, SOCK_STREAM, 0)) ||
        !is_refused(socket(AF_NETLINK, SOCK_RAW, 0)) ||
        !is_refused(socket(AF_VSOCK, SOCK_STREAM, 0)))
        return 4;
    if (!is_refused(unshare(CLONE_NEWUSER)) || !is_refused(setns(0, 0)) ||
        !is_refused(ptrace(PTRACE_TRACEME, 0, NULL, NULL)))
        return 5;
    if (!is_refused(syscall(SYS_io_uring_setup, 1, NULL)) ||
        !is_refused(syscall(SYS_bpf, 0, NULL, 0)) || !is_refused(syscall(SYS_keyctl, 0, 0)) ||
        !is_refused(memfd_create("x", 0)))
        return 6;
    /* The thread that it needs works on. */
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 7;
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) < 0)
        return 8;
    fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    return fd < 0 ? 9 : 0;
}

static void test_confined(void **state)
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0)
        _exit(confined());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* -- messages between threads -------------------------------------------------------------------- */

#define LETTERS 20000

struct note {
    struct mailbox_message message;
    int number;
};

struct reader {
    struct mailbox box;
    int next;
};

static void open_note(struct mailbox_message *l, void *reader)
{
    struct note *n = CONTAINER_OF(l, struct note, message);
    struct reader *r = reader;

    assert_int_equal(n->number, r->next); /* in the order they were sent */
    r->next++;
    free(n);
    if (r->next == LETTERS)
        mailbox_close(&r->box);
}

static int dropped;

static void discard_note(struct mailbox_message *l)
{
    free(CONTAINER_OF(l, struct note, message));
    dropped++;
}

static struct note *note_new(int number)
{
    struct note *n = calloc(1, sizeof(*n));

    assert_non_null(n);
    n->message.open = open_note;
    n->message.discard = discard_note;
    n->number = number;
    return n;
}

static void *send_all(void *arg)
{
    struct mailbox *box = arg;

    for (int i = 0; i < LETTERS; i++) {
        struct note *n = note_new(i);

        while (mailbox_post(box, &n->message) == -EAGAIN)
            sched_yield();
    }
    return NULL;
}

static void test_messages_arrive_in_order(void **state)
{
    struct reader r = {0};
    pthread_t sender;
    uv_loop_t loop;

    uv_loop_init(&loop);
    assert_int_equal(mailbox_init(&r.box, &loop, 64, &r), 0);
    assert_int_equal(pthread_create(&sender, NULL, send_all, &r.box), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_join(sender, NULL);
    assert_int_equal(r.next, LETTERS);
    mailbox_free(&r.box);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_mailbox_is_bounded_and_drops(void **state)
{
    struct reader r = {0};
    struct note *extra;
    uv_loop_t loop;

    dropped = 0;
    uv_loop_init(&loop);
    assert_int_equal(mailbox_init(&r.box, &loop, 3, &r), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mailbox_post(&r.box, &note_new(i)->message), 0);
    extra = note_new(3);
    assert_int_equal(mailbox_post(&r.box, &extra->message), -EAGAIN);
    mailbox_answer(&r.box, &extra->message); /* an answer always fits */
    mailbox_close(&r.box);
    assert_int_equal(dropped, 4);
    mailbox_answer(&r.box, &note_new(4)->message); /* the reader has gone */
    assert_int_equal(dropped, 5);
    extra = note_new(5);
    assert_int_equal(mailbox_post(&r.box, &extra->message), -EPIPE);
    free(extra);
    uv_run(&loop, UV_RUN_DEFAULT);
    mailbox_free(&r.box);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Twice as many keys as there is memory for: each is the tenant's that was said of it, or not
 * known. */
static void test_owners_of_keys(void **state)
{
    static struct key_owners owners;
    char key[32], tenant[CORE_TENANT_SIZE];
    unsigned known = 0;

    assert_string_equal(key_owner_find(&owners, "e2b_0"), "");
    assert_string_equal(key_owner_find(&owners, ""), "");
    for (unsigned i = 0; i < 2 * KEY_OWNERS_MAX; i++) {
        snprintf(key, sizeof(key), "e2b_%u", i);
        snprintf(tenant, sizeof(tenant), "t%u", i);
        key_owner_remember(&owners, key, tenant);
        assert_string_equal(key_owner_find(&owners, key), tenant);
    }
    for (unsigned i = 0; i < 2 * KEY_OWNERS_MAX; i++) {
        const char *found;

        snprintf(key, sizeof(key), "e2b_%u", i);
        snprintf(tenant, sizeof(tenant), "t%u", i);
        found = key_owner_find(&owners, key);
        assert_true(strcmp(found, tenant) == 0 || !*found);
        known += *found != '\0';
    }
    assert_in_range(known, KEY_OWNERS_MAX / 2, KEY_OWNERS_MAX);
    assert_string_equal(key_owner_find(&owners, "e2b_"), "");
}

/* A key that was revoked is not its tenant's any more; the others are. */
static void test_a_revoked_key_has_no_owner(void **state)
{
    static struct key_owners owners;
    char id[CORE_KEY_ID_SIZE];

    key_owner_remember(&owners, "e2b_1", "one");
    key_owner_remember(&owners, "e2b_2", "two");
    core_key_id("e2b_3", id);
    key_owner_forget(&owners, id);
    assert_string_equal(key_owner_find(&owners, "e2b_1"), "one");
    core_key_id("e2b_1", id);
    key_owner_forget(&owners, id);
    assert_string_equal(key_owner_find(&owners, "e2b_1"), "");
    assert_string_equal(key_owner_find(&owners, "e2b_2"), "two");
    key_owner_forget(&owners, NULL);
    assert_string_equal(key_owner_find(&owners, "e2b_2"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confined),
        cmocka_unit_test(test_messages_arrive_in_order),
        cmocka_unit_test(test_mailbox_is_bounded_and_drops),
        cmocka_unit_test(test_owners_of_keys),
        cmocka_unit_test(test_a_revoked_key_has_no_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
