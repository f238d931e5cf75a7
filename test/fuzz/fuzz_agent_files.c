/* cay-init's files and filesystem services, whole, and /init: the input is what a client sends over one
 * connection. The handlers run as root and do what they are asked to, removing included, so they run in
 * a thread whose root directory is an empty one made for it; the fuzzer's own thread keeps the real
 * root. Needs CAP_SYS_CHROOT. The file worker is replaced by one without a thread, so that an input
 * always does the same. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/fs/fs_remove.h"
#include "agent/fs/fs_worker.h"
#include "agent_driver.h"
#include "fuzz.h"

#define ANSWERED_MAX   64
#define FILE_BYTES_MAX (32u << 20) /* what a small input may unpack or compose */

static char top[4096];
static sem_t wanted, finished;
static const uint8_t *input;
static size_t input_size;
static bool touched; /* a request that may have changed something came */

/* -- the worker without a thread ----------------------------------------------------------------- */

struct fs_worker {
    struct fs_job *first, **last;
};

static struct fs_worker worker = {NULL, &worker.first};

struct fs_worker *fs_worker_new(uv_loop_t *loop UNUSED)
{
    return &worker;
}

void fs_worker_free(struct fs_worker *w UNUSED)
{
}

void fs_worker_submit(struct fs_worker *w, struct fs_job *job)
{
    job->next = NULL;
    *w->last = job;
    w->last = &job->next;
}

/* A job belongs to the worker for some turns, in which its client may go. */
static void turn(uint32_t chance)
{
    struct fs_job *job = worker.first;

    if (!job || chance % 4 == 0)
        return;
    worker.first = job->next;
    if (!worker.first)
        worker.last = &worker.first;
    job->work(job);
    job->done(job);
}

/* -- the world that the handlers see -------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    FUZZ_CHECK(f && fputs(text, f) >= 0);
    fclose(f);
}

static void make_world(void)
{
    FUZZ_CHECK(mkdir("/etc", 0755) == 0 && mkdir("/home", 0755) == 0 && mkdir("/tmp", 01777) == 0);
    FUZZ_CHECK(mkdir("/home/user", 0755) == 0 && chown("/home/user", 1000, 1000) == 0);
    write_text("/etc/passwd",
               "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
    write_text("/etc/group", "root:x:0:\nuser:x:1000:\nmore:x:27:user\n");
    write_text("/home/user/a", "hello world, hello world\n");
    FUZZ_CHECK(mkdir("/home/user/d", 0755) == 0 && mkdir("/home/user/d/e", 0755) == 0);
    write_text("/home/user/d/e/f", "f");
    FUZZ_CHECK(symlink("../a", "/home/user/d/link") == 0 &&
               symlink("/x/y", "/home/user/gone") == 0);
    FUZZ_CHECK(symlink("loop", "/home/user/loop") == 0 && mkfifo("/home/user/fifo", 0666) == 0);
}

static void remove_tree(const char *path)
{
    struct fs_remover *r;
    int more = fs_remover_new(path, &r);

    FUZZ_CHECK(more == 0);
    while ((more = fs_remover_step(r)) == 1)
        ;
    FUZZ_CHECK(more == 0);
    fs_remover_free(r);
}

static void empty_world(void)
{
    char path[sizeof(((struct dirent *)0)->d_name) + 2];
    struct dirent *entry;
    DIR *d = opendir("/");

    FUZZ_CHECK(d);
    while ((entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "/%s", entry->d_name);
        remove_tree(path);
    }
    closedir(d);
}

static void enter_world(void)
{
    /* This thread's root and working directory become its own; the other threads' stay. */
    if (unshare(CLONE_FS) < 0 || chroot(top) < 0 || chdir("/") < 0) {
        perror("fuzz_agent_files needs root: chroot");
        _exit(77);
    }
    /* Nothing else may be in it: all that is here will be removed. */
    FUZZ_CHECK(access("/proc", F_OK) < 0 && access("/usr", F_OK) < 0 && rmdir("/marker") == 0);
    make_world();
}

/* -- a finding ------------------------------------------------------------------------------------ */

static int real_root = -1;
static const int crashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static struct sigaction fuzzers[ARRAY_SIZE(crashes)];

/* A report must find the real files: the input is written, the symbols are read. */
static void leave_world(void)
{
    if (real_root >= 0 && fchdir(real_root) == 0)
        (void)!chroot(".");
}

void __asan_on_error(void);
void __asan_on_error(void)
{
    leave_world();
}

void __ubsan_on_report(void);
void __ubsan_on_report(void)
{
    leave_world();
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    leave_world();
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++) {
        if (crashes[i] != number)
            continue;
        sigaction(number, &fuzzers[i], NULL);
        if (fuzzers[i].sa_flags & SA_SIGINFO)
            fuzzers[i].sa_sigaction(number, info, context);
    }
    raise(number);
}

/* libFuzzer has set its handlers by now. Its alarm and its ends are for its own thread. */
static void take_crashes(void)
{
    struct sigaction mine = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};

    real_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    FUZZ_CHECK(real_root >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++)
        FUZZ_CHECK(sigaction(crashes[i], &mine, &fuzzers[i]) == 0);
}

static void keep_only_crashes(void)
{
    sigset_t set;

    sigfillset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(crashes); i++)
        sigdelset(&set, crashes[i]);
    FUZZ_CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void leave_nothing(void)
{
    char path[sizeof(top) + 8];

    static const char *const names[] = {"/home/user/d/e/f",
                                        "/home/user/d/e",
                                        "/home/user/d/link",
                                        "/home/user/d",
                                        "/home/user/a",
                                        "/home/user/gone",
                                        "/home/user/loop",
                                        "/home/user/fifo",
                                        "/home/user",
                                        "/home",
                                        "/tmp",
                                        "/etc/passwd",
                                        "/etc/group",
                                        "/etc",
                                        ""};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%.4000s%s", top, names[i]);
        (void)remove(path);
    }
}

/* -- the agent ------------------------------------------------------------------------------------ */

static bool allowed(const char *method, const char *path)
{
    if (strncmp(path, "/process.Process/", 17) == 0 || strcmp(path, "/metrics") == 0)
        return false;
    touched |= strcmp(method, "POST") == 0;
    return true;
}

/* Polled watchers outlive their client, by design: they are asked to go. */
static void remove_watchers(struct agent *a)
{
    static char ids[ANSWERED_MAX][32], request[512];
    size_t count = 0;

    for (const char *p = agent_driver_answers(); (p = strstr(p, "\"watcherId\":\"")); p += 13)
        if (count < ARRAY_SIZE(ids))
            snprintf(ids[count++], sizeof(ids[0]), "%.*s", (int)strcspn(p + 13, "\""), p + 13);
    while (count-- > 0) {
        int n = snprintf(request, sizeof(request),
                         "%cPOST /filesystem.Filesystem/RemoveWatcher HTTP/1.1\r\nHost: a\r\n"
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n"
                         "{\"watcherId\":\"%s\"}",
                         1, strlen(ids[count]) + 16, ids[count]);

        agent_driver_run(a, (const uint8_t *)request, (size_t)n);
    }
}

static void put_back(struct agent *a)
{
    remove_watchers(a);
    for (int i = 0; worker.first; i++) {
        FUZZ_CHECK(i < 100000);
        turn(1);
    }
    snprintf(a->default_user, sizeof(a->default_user), "user");
    a->default_workdir[0] = '\0';
    a->init_real_ms = 0;
    json_object_clear(a->env);
    if (touched) {
        empty_world();
        make_world();
    }
    touched = false;
}

static void *serve(void *arg UNUSED)
{
    static const struct agent_driver d = {allowed, turn};
    struct agent *a;

    keep_only_crashes();
    enter_world();
    a = agent_driver_new(&d);
    put_back(a);
    for (;;) {
        while (sem_wait(&wanted) < 0)
            ;
        agent_driver_run(a, input, input_size);
        put_back(a);
        sem_post(&finished);
    }
    return NULL;
}

static void begin(void)
{
    const char *tmp = getenv("TMPDIR");
    struct rlimit files = {FILE_BYTES_MAX, FILE_BYTES_MAX};
    char marker[sizeof(top) + 8];
    pthread_t thread;

    snprintf(top, sizeof(top), "%.4000s/cay-fuzz-files-XXXXXX", tmp ? tmp : "/tmp");
    FUZZ_CHECK(mkdtemp(top) && chmod(top, 0755) == 0 && atexit(leave_nothing) == 0);
    snprintf(marker, sizeof(marker), "%s/marker", top);
    FUZZ_CHECK(mkdir(marker, 0700) == 0);
    signal(SIGXFSZ, SIG_IGN);
    take_crashes();
    FUZZ_CHECK(setrlimit(RLIMIT_FSIZE, &files) == 0);
    sem_init(&wanted, 0, 0);
    sem_init(&finished, 0, 0);
    FUZZ_CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 20000)
        return 0;
    if (!top[0])
        begin();
    input = data;
    input_size = size;
    sem_post(&wanted);
    while (sem_wait(&finished) < 0)
        ;
    return 0;
}
