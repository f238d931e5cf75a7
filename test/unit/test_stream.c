/* The file of an export, whose client takes all of it, goes, or takes a little now and then: it is held for an hour at most, which
 * is shorter here. */
#include "http_fixture.h"

#include "base/util.h"
#include "cayd/stream.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (8u << 20)
#define HOUR_MS    3600000u
#define SHORT_MS   150u

static struct streams *all;
static unsigned hours;
static uint64_t shorter_ms;

int __real_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t again);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t again);

int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t again)
{
    hours += ms == HOUR_MS;
    return __real_uv_timer_start(t, cb, ms == HOUR_MS ? shorter_ms : ms, again);
}

static int make_file(void)
{
    char path[] = "/tmp/cay-test-stream-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
    return fd;
}

static bool file_is_held(void)
{
    struct stat st;

    for (int fd = 0; fd < 256; fd++)
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 &&
            st.st_size == FILE_BYTES)
            return true;
    return false;
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;

    f->calls++;
    http_response_begin(x, 200, NULL, 0, FILE_BYTES);
    stream_start_file(all, x, "key", make_file(), FILE_BYTES);
}

static int start(struct fixture *f, uint64_t ms)
{
    hours = 0;
    shorter_ms = ms;
    fixture_start(f, NULL, handler);
    assert_int_equal(streams_new(&f->loop, &all), 0);
    return fixture_client(f);
}

static void finish(struct fixture *f, int fd)
{
    close(fd);
    fixture_spin(f);
    streams_end(all);
    fixture_stop(f);
    streams_free(all);
}

static size_t take_until(struct fixture *f, int fd, size_t most)
{
    static char bytes[65536];
    size_t taken = 0;

    for (uint64_t end = clock_mono_ms() + 20000; taken < most && clock_mono_ms() < end;) {
        ssize_t n;

        fixture_spin(f);
        n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        taken += n > 0 ? (size_t)n : 0;
    }
    return taken;
}

#define GET "GET /file HTTP/1.1\r\nHost: a\r\n\r\n"

static void a_client_that_reads_gets_all_of_it(void **state)
{
    struct fixture f;
    int fd = start(&f, 20000);

    fixture_send(&f, fd, GET);
    assert_true(take_until(&f, fd, FILE_BYTES + 1) > FILE_BYTES);
    fixture_spin(&f);
    assert_int_equal(hours, 1);
    assert_false(file_is_held());
    fixture_send(&f, fd, GET); /* the connection goes on */
    assert_int_equal(f.calls, 2);
    finish(&f, fd);
}

/* A client that takes nothing, and a client that takes so little that there is always more to send. */
static void after_its_time_it_is_held_no_more(void **state)
{
    for (int takes = 0; takes < 2; takes++) {
        struct fixture f;
        int fd = start(&f, SHORT_MS);
        uint64_t end;
        char byte;

        fixture_send(&f, fd, GET);
        assert_true(file_is_held());
        end = clock_mono_ms() + 50 * SHORT_MS;
        while (file_is_held() && clock_mono_ms() < end) {
            fixture_wait(&f, 5);
            if (takes)
                (void)recv(fd, &byte, 1, MSG_DONTWAIT);
        }
        assert_int_equal(hours, 1);
        assert_false(file_is_held());
        finish(&f, fd);
    }
}

static void a_client_that_goes_leaves_nothing(void **state)
{
    struct fixture f;
    int fd = start(&f, SHORT_MS);

    fixture_send(&f, fd, GET);
    shutdown(fd, SHUT_RDWR);
    close(fd);
    fixture_wait(&f, 20);
    assert_false(file_is_held());
    finish(&f, open("/dev/null", O_RDONLY | O_CLOEXEC));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_reads_gets_all_of_it),
        cmocka_unit_test(after_its_time_it_is_held_no_more),
        cmocka_unit_test(a_client_that_goes_leaves_nothing),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
