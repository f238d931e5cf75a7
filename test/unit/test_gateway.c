#include "base/clock.h"
#include "core/ingress.h"
#include "gateway/access.h"
#include "gateway/answer.h"
#include "gateway/idle_connections.h"
#include "gateway/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define TOKEN "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

static struct http_head head(const char *method, const char *path, const char *query,
                             const char *host)
{
    return (struct http_head){.method = method, .path = path, .query = query, .host = host};
}

static void add(struct http_head *h, const char *name, const char *value)
{
    h->headers[h->header_count++] = (struct http_header){name, value};
}

/* -- routes ------------------------------------------------------------------------------------- */

static void test_host_labels(void **state)
{
    static const struct {
        const char *host;
        bool sandbox_form;
        enum route_kind kind;
        const char *id;
        unsigned port;
    } cases[] = {
        {"3000-iabc123.localhost:8080", true, ROUTE_SANDBOX, "iabc123", 3000},
        {"49983-i0.example.com", true, ROUTE_SANDBOX, "i0", 49983},
        {"080-iabc.x", true, ROUTE_SANDBOX, "iabc", 80},
        {"80-iabc-client1.x", true, ROUTE_SANDBOX, "iabc", 80},
        {"0-iabc.x", true, ROUTE_BAD, NULL, 0},
        {"3127-iabc.x", true, ROUTE_SANDBOX, "iabc", 3127},
        {"3128-iabc.x", true, ROUTE_BAD, NULL, 0}, /* the way out's: EGRESS_TCP_PORT */
        {"03128-iabc-c.x", true, ROUTE_BAD, NULL, 0},
        {"65536-iabc.x", true, ROUTE_BAD, NULL, 0},
        {"649983-iabc.x", true, ROUTE_BAD, NULL, 0},
        {"80-IABC.x", true, ROUTE_BAD, NULL, 0},
        {"80-.x", true, ROUTE_BAD, NULL, 0},
        {"80--a.x", true, ROUTE_BAD, NULL, 0},
        {"80-iabcdefghijklmnopqrstuvwxyz.x", true, ROUTE_BAD, NULL, 0},
        {"localhost:3000", false, 0, NULL, 0},
        {"127.0.0.1:3000", false, 0, NULL, 0},
        {"80-iabc", false, 0, NULL, 0},      /* no domain */
        {"80-iabc:3000", false, 0, NULL, 0}, /* nor here */
        {"[::1]:3000", false, 0, NULL, 0},
        {"api.example.com", false, 0, NULL, 0},
        {"", false, 0, NULL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct route r = {0};

        assert_int_equal(route_parse_host(cases[i].host, &r), cases[i].sandbox_form);
        if (!cases[i].sandbox_form)
            continue;
        assert_int_equal(r.kind, cases[i].kind);
        if (r.kind == ROUTE_SANDBOX) {
            assert_string_equal(r.id, cases[i].id);
            assert_int_equal(r.port, cases[i].port);
        }
    }
}

static void test_signed_addresses(void **state UNUSED)
{
    static const char id[] = "i0123456789abcdefghij", token[] = "0011223344556677", other[] = "x";
    char host[128], made[INGRESS_SIGNED_LEN + 1];
    struct route r = {0};

    assert_int_equal(strlen(id), IDS_SANDBOX_LEN);
    ingress_sign_port(token, 65535, 1800000000, made);
    assert_true(snprintf(host, sizeof(host), "65535-%s%s.a", id, made) - 2 <= 63); /* one label */
    assert_true(route_parse_host(host, &r));
    assert_int_equal(r.kind, ROUTE_SANDBOX);
    assert_string_equal(r.id, id);
    assert_string_equal(r.signed_until, made);
    assert_int_equal(ingress_check_signed(token, 65535, made, 1800000000), 0);
    assert_int_equal(ingress_check_signed(token, 65535, made, 1800000001), -ETIMEDOUT);
    assert_int_equal(ingress_check_signed(token, 65534, made, 0), -EPERM);
    assert_int_equal(ingress_check_signed(other, 65535, made, 0), -EPERM);
    for (size_t i = 0; i < INGRESS_SIGNED_LEN; i++) { /* each character counts */
        char before = made[i];

        made[i] = before == 'a' ? 'b' : 'a';
        assert_int_equal(ingress_check_signed(token, 65535, made, 0), -EPERM);
        made[i] = before;
    }
    ingress_sign_port(token, AGENT_PORT, 1800000000, made);
    assert_int_equal(ingress_check_signed(token, AGENT_PORT, made, 0), -EPERM);
    assert_int_equal(ingress_check_signed(token, 80, "", 0), -EPERM);
}

/* The signature is that of Daytona's own client: made by PyPI daytona 0.226.1 with this key. */
static void test_signed_urls_of_files(void **state UNUSED)
{
    static const char key[] = "00112233445566778899aabbccddeeff";
    static const char good[] = "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=1800000000&signature=v1_"
                               "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co";
    static const struct {
        const char *method, *query;
    } wrong[] = {
        {"POST", good},
        {"GET", "path=%2Ftmp%2Fa&expires=1800000000&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=1800000001&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=0&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=01800000000&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=-1&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=9999999999999999&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET",
         "path=%2Ftmp%2Fa+b%3A%C3%A9&signature=v1_QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "expires=1800000000&signature=v1_QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET",
         "path=&expires=1800000000&signature=v1_QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107co"},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=1800000000&signature="},
        {"GET", "path=%2Ftmp%2Fa+b%3A%C3%A9&expires=1800000000&signature=v1_"
                "QprYrYQDzTqvFjQxF80S0EjpyUs5sIDIrZBbOr107coA"},
    };
    char message[ACCESS_MESSAGE_SIZE], made[FILE_URL_KEY_SIZE], other[FILE_URL_KEY_SIZE];
    struct http_head h = {.method = "GET", .path = "", .query = good};
    struct access a;

    assert_int_equal(access_read_file_url(&h, &a), 0);
    assert_true(access_check_file_url(&a, key, 1800000000, message));
    assert_false(access_check_file_url(&a, key, 1800000001, message));
    assert_non_null(strstr(message, "over its time"));
    assert_false(access_check_file_url(&a, "00112233445566778899aabbccddeefe", 0, message));
    access_free(&a);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        h.method = wrong[i].method;
        h.query = wrong[i].query;
        assert_int_equal(access_read_file_url(&h, &a), 0);
        assert_false(access_check_file_url(&a, key, 0, message));
        access_free(&a);
    }
    h.method = "GET";
    h.query = "path=%2Ftmp%2Fa&expires=0&signature=v1_0JtSv8TJTZrOTwDQyMb1M9ey1KMDOzJXeK-5q6ir-"
              "WE"; /* never over */
    assert_int_equal(access_read_file_url(&h, &a), 0);
    assert_true(access_check_file_url(&a, key, 1800000001, message));
    access_free(&a);
    h.query = "path=%2Ftmp%2Fa&expires=0";
    assert_int_equal(access_read_file_url(&h, &a), -ENOENT);
    file_url_key("0011", 0, made);
    file_url_key("0011", 1, other);
    assert_string_not_equal(made, other);
    file_url_key("0012", 0, other);
    assert_string_not_equal(made, other);
}

static struct route route_of(const struct http_head *h)
{
    struct route r;

    route_request(h, &r);
    return r;
}

static void test_header_routing(void **state)
{
    struct http_head h = head("GET", "/x", "", "127.0.0.1:3000");
    struct route r = route_of(&h);

    assert_int_equal(r.kind, ROUTE_CONTROL_PLANE);
    add(&h, "e2b-sandbox-id", "iabc");
    assert_int_equal(route_of(&h).kind, ROUTE_BAD);
    add(&h, "E2B-SANDBOX-PORT", "8080");
    r = route_of(&h);
    assert_int_equal(r.kind, ROUTE_SANDBOX);
    assert_string_equal(r.id, "iabc");
    assert_int_equal(r.port, 8080);
    /* A host that names a sandbox wins over headers. */
    h.host = "81-ixyz.example.com";
    r = route_of(&h);
    assert_string_equal(r.id, "ixyz");
    assert_int_equal(r.port, 81);
}

static void test_who_asks_is_said_once(void **state)
{
    static const char *const everywhere[] = {"E2b-Sandbox-Id", "e2b-sandbox-port", "X-ACCESS-TOKEN",
                                             "E2b-Traffic-Access-Token", "X-Daytona-Preview-Token"};
    static const char *const ours[] = {"X-API-Key", "Authorization", "Idempotency-Key"};
    static const char *const hosts[] = {"api.example.com", "49983-iabc.example.com",
                                        "80-iabc.example.com"};

    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(everywhere) + ARRAY_SIZE(ours); k++) {
            bool own = k >= ARRAY_SIZE(everywhere);
            const char *name = own ? ours[k - ARRAY_SIZE(everywhere)] : everywhere[k];
            struct http_head h = head("GET", "/x", "", hosts[i]);

            add(&h, name, "1");
            assert_null(route_repeated(&h));
            add(&h, "Accept", "2");
            add(&h, "Accept", "3");
            assert_null(route_repeated(&h));
            add(&h, name, "2"); /* a tenant's own port gets what its clients send */
            assert_int_equal(route_repeated(&h) != NULL, !own || i < 2);
        }
    }
}

static void test_bad_headers(void **state)
{
    static const char *const ports[] = {
        "", "0", "-1", "80 ", "8o", "65536", "99999999999999999999"};
    struct http_head only_port = head("GET", "/", "", "h");

    for (size_t i = 0; i < ARRAY_SIZE(ports); i++) {
        struct http_head h = head("GET", "/", "", "h");

        add(&h, ROUTE_HEADER_ID, "iabc");
        add(&h, ROUTE_HEADER_PORT, ports[i]);
        assert_int_equal(route_of(&h).kind, ROUTE_BAD);
    }
    add(&only_port, ROUTE_HEADER_PORT, "80");
    assert_int_equal(route_of(&only_port).kind, ROUTE_BAD);
}

static void test_signed_urls_without_an_id(void **state)
{
    struct http_head h = head("GET", "/files", "path=a&signature=v1_x", "127.0.0.1");
    struct http_head plain = head("GET", "/files", "path=a", "127.0.0.1");
    struct http_head other = head("GET", "/filesx", "signature=v1_x", "127.0.0.1");

    assert_int_equal(route_of(&h).kind, ROUTE_SIGNED);
    assert_int_equal(route_of(&h).port, AGENT_PORT);
    assert_int_equal(route_of(&plain).kind, ROUTE_CONTROL_PLANE);
    assert_int_equal(route_of(&other).kind, ROUTE_CONTROL_PLANE);
}

static void test_contents_of_volumes(void **state)
{
    static const char *const bad[] = {"/volumecontent/", "/volumecontent/vabc",
                                      "/volumecontent//path", "/volumecontent/v%61/path",
                                      "/volumecontent/vabcdefghijklmnopqrstuvwxyz0123456789/path"};
    struct http_head h = head("GET", "/volumecontent/vabc/path", "path=/", "127.0.0.1");
    struct http_head of_box = head("GET", "/volumecontent/vabc/path", "", "49983-iabc.localhost");
    struct http_head other = head("GET", "/volumecontents/vabc/path", "", "127.0.0.1");
    struct access a;

    assert_int_equal(route_of(&h).kind, ROUTE_VOLUME);
    assert_int_equal(route_of(&h).port, AGENT_PORT);
    assert_string_equal(route_of(&h).id, "vabc");
    assert_int_equal(route_of(&of_box).kind, ROUTE_SANDBOX);
    assert_int_equal(route_of(&other).kind, ROUTE_CONTROL_PLANE);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        h = head("GET", bad[i], "", "127.0.0.1");
        assert_int_equal(route_of(&h).kind, ROUTE_VOLUME);
        assert_string_equal(route_of(&h).id, ""); /* no volume has it: 404 */
    }
    add(&h, ACCESS_TOKEN_HEADER, TOKEN);
    access_read_bearer(&h, &a);
    assert_false(a.has_token);
    add(&h, "Authorization", "Bearer " TOKEN);
    access_read_bearer(&h, &a);
    assert_true(a.has_token);
    assert_string_equal(a.token, TOKEN);
}

static void test_closed_agent_paths(void **state)
{
    static const char *const open[] = {
        "/health",  "/files", "/process.Process/Start", "/filesystem.Filesystem/Stat",
        "/metrics", "/envs",  "/files/compose",         "/volumecontent/v1/path"};
    static const char *const closed[] = {
        "/init",       "/INIT",   "/init/",     "/cay",         "/cay/v1",  "/%69nit",
        "//init",      "/./init", "/x/../init", "/freeze",      "/fsthaw",  "/in\\it",
        "/files%2f..", "/init?x", "init",       "/files;x",     "/initial", "/filesystem",
        "/Health",     "/",       "/healthy",   "/new.Service", ""};

    for (size_t i = 0; i < ARRAY_SIZE(open); i++)
        assert_true(route_agent_path_is_open(open[i]));
    for (size_t i = 0; i < ARRAY_SIZE(closed); i++)
        assert_false(route_agent_path_is_open(closed[i]));
}

/* -- access ------------------------------------------------------------------------------------- */

static void test_signature_vector(void **state)
{
    char out[ACCESS_SIGNATURE_SIZE];

    assert_int_equal(access_sign("hello.txt:read:user", TOKEN, false, 0, out), 0);
    assert_string_equal(out, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
}

/* Reads a request for /files with that query and says what the check answers. */
static bool check(const char *method, const char *path, const char *query, const char *token,
                  char *message)
{
    struct http_head h = head(method, path, query, "h");
    struct access a;
    bool ok;

    if (token)
        add(&h, ACCESS_TOKEN_HEADER, token);
    assert_int_equal(access_read(&h, &a), 0);
    ok = access_check_agent(&a, TOKEN, 1000, message);
    access_free(&a);
    return ok;
}

static void test_access_token(void **state)
{
    char m[ACCESS_MESSAGE_SIZE];

    assert_true(check("POST", "/process.Process/List", "", TOKEN, m));
    assert_false(check("POST", "/process.Process/List", "", NULL, m));
    assert_string_equal(m, "unauthorized access, please provide a valid access token or method "
                           "signing if supported");
    assert_false(check("POST", "/process.Process/List", "", TOKEN "x", m));
    assert_false(check("POST", "/process.Process/List", "", "", m));
    assert_true(check("GET", "/health", "", NULL, m));
    assert_false(check("POST", "/health", "", NULL, m));
    assert_false(check("GET", "/healthx", "", NULL, m));
    assert_true(check("GET", "/files", "path=a", TOKEN, m));
    assert_false(check("GET", "/files", "path=a", "wrong", m));
    assert_string_equal(m, "access token present in header but does not match");
    assert_false(check("GET", "/files", "path=a", NULL, m));
    assert_string_equal(m, "missing signature query parameter");
    assert_false(check("DELETE", "/files", "path=a&signature=v1_x", NULL, m));
}

static void test_signatures(void **state)
{
    char m[ACCESS_MESSAGE_SIZE], signature[ACCESS_SIGNATURE_SIZE], query[256];

    assert_true(check("GET", "/files",
                      "path=hello.txt&username=user&signature=v1_gUtH/"
                      "s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E",
                      NULL, m));
    /* The same for writing, for another path, or cut, is nothing. */
    assert_false(check("POST", "/files",
                       "path=hello.txt&username=user&signature=v1_gUtH/"
                       "s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E",
                       NULL, m));
    assert_string_equal(m, "invalid signature");
    assert_false(check("GET", "/files",
                       "path=hello.tx&username=user&signature=v1_gUtH/"
                       "s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E",
                       NULL, m));
    assert_false(check("GET", "/files", "path=hello.txt&username=user&signature=v1_gUtH", NULL, m));
    assert_false(check("GET", "/files", "path=hello.txt&signature=", NULL, m));

    access_sign("a:write:", TOKEN, true, 999, signature);
    snprintf(query, sizeof(query), "path=a&signature_expiration=999&signature=%s", signature);
    assert_null(strchr(signature, '+')); /* which the query would have to escape */
    assert_false(check("POST", "/files", query, NULL, m));
    assert_string_equal(m, "signature is already expired");
    assert_false(
        check("POST", "/files", "path=a&signature_expiration=99x&signature=v1_y", NULL, m));
    assert_string_equal(m, "invalid signature");
}

static void test_traffic_token(void **state)
{
    struct http_head h = head("GET", "/", "", "h");
    char right[CORE_TOKEN_SIZE + 1], m[ACCESS_MESSAGE_SIZE];
    struct access a;

    ingress_traffic_token(TOKEN, right);
    assert_string_not_equal(right, TOKEN);
    assert_int_equal(access_read(&h, &a), 0);
    assert_false(access_check_traffic(&a, TOKEN, m));
    assert_non_null(strstr(m, "is missing"));
    add(&h, "e2b-traffic-access-token", TOKEN);
    assert_int_equal(access_read(&h, &a), 0);
    assert_false(access_check_traffic(&a, TOKEN, m));
    assert_non_null(strstr(m, "is invalid"));
    h.headers[0].value = right;
    assert_int_equal(access_read(&h, &a), 0);
    assert_true(access_check_traffic(&a, TOKEN, m));
}

static void test_masked_host(void **state)
{
    const struct network_fields fields = {.masked_host = "app.local:${PORT}"};
    struct network *n = network_new(&fields);
    char out[64];

    assert_int_equal(ingress_masked_host(NULL, 80, out, sizeof(out)), 0);
    assert_int_equal(ingress_masked_host(n, 8080, out, sizeof(out)), strlen("app.local:8080"));
    assert_string_equal(out, "app.local:8080");
    assert_int_equal(ingress_masked_host(n, 8080, out, 8), 0);
    network_unref(n);
}

/* -- idle connections --------------------------------------------------------------------------- */

static void test_idle(void **state)
{
    struct idle_connections p;
    int pair[2], closed[2];

    idle_connections_init(&p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, closed), 0);
    idle_connections_put(&p, "ia", 7, pair[0], 1000);
    assert_int_equal(idle_connections_generation(&p, "ia"), 7);
    assert_int_equal(idle_connections_generation(&p, "ib"), 0);
    assert_int_equal(idle_connections_take(&p, "ia", 8), -1);
    assert_int_equal(idle_connections_take(&p, "ib", 7), -1);
    assert_int_equal(idle_connections_take(&p, "ia", 7), pair[0]);
    assert_int_equal(idle_connections_take(&p, "ia", 7), -1);
    /* A connection that the other side has closed or written to is not handed out. */
    close(closed[1]);
    idle_connections_put(&p, "ia", 7, closed[0], 1000);
    assert_int_equal(idle_connections_take(&p, "ia", 7), -1);
    assert_int_equal(write(pair[1], "x", 1), 1);
    idle_connections_put(&p, "ia", 7, pair[0], 1000);
    assert_int_equal(idle_connections_take(&p, "ia", 7), -1);
    assert_int_equal(p.count, 0);
    close(pair[1]);
}

static void test_idle_is_bounded_and_short(void **state)
{
    struct idle_connections p;
    int pair[2];

    idle_connections_init(&p);
    for (int i = 0; i < IDLE_MAX_EACH + 3; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        idle_connections_put(&p, "ia", 1, pair[0], 1000);
        close(pair[1]);
    }
    assert_int_equal(p.count, IDLE_MAX_EACH);
    idle_connections_sweep(&p, 1000 + IDLE_KEEP_MS - 1);
    assert_int_equal(p.count, IDLE_MAX_EACH);
    idle_connections_sweep(&p, 1000 + IDLE_KEEP_MS);
    assert_int_equal(p.count, 0);
}

static void test_html(void **state)
{
    struct http_head h = head("GET", "/", "", "h"), post = head("POST", "/", "", "h");

    assert_false(answer_wants_html(&h));
    add(&h, "Accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    assert_true(answer_wants_html(&h));
    add(&post, "Accept", "text/html");
    assert_false(answer_wants_html(&post));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signed_addresses),
        cmocka_unit_test(test_signed_urls_of_files),
        cmocka_unit_test(test_host_labels),
        cmocka_unit_test(test_header_routing),
        cmocka_unit_test(test_who_asks_is_said_once),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_signed_urls_without_an_id),
        cmocka_unit_test(test_contents_of_volumes),
        cmocka_unit_test(test_closed_agent_paths),
        cmocka_unit_test(test_signature_vector),
        cmocka_unit_test(test_access_token),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_traffic_token),
        cmocka_unit_test(test_masked_host),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_idle_is_bounded_and_short),
        cmocka_unit_test(test_html),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
