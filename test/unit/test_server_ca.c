/* The local authority: cases in which it is made, kept, made anew and refused. Needs root, whose
 * the directory has to be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/io.h"
#include "cli/server_ca.h"
#include "cli/server_ca_x509.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define DAY_S 86400

static char home[64];

static int set_up(void **state)
{
    snprintf(home, sizeof(home), "/var/tmp/cay-test-authority-XXXXXX");
    return mkdtemp(home) && chmod(home, 0755) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf -- %s", home);
    return system(command);
}

static void load(struct settings *s, const char *domain, const char *address)
{
    char dir[80], name[300], at[80], program[] = "test";
    char *argv[] = {program, dir, name, at, NULL};
    struct err e;
    int argc = 4;

    snprintf(dir, sizeof(dir), "--state-dir=%s", home);
    snprintf(name, sizeof(name), "--server-domain=%s", domain);
    snprintf(at, sizeof(at), "--listen-address=%s", address);
    assert_int_equal(settings_load(s, "/dev/null", &argc, argv, &e), ERR_OK);
}

static enum err_code ensure(const char *domain, const char *address, bool renew_only,
                            struct server_ca_files *files, bool *changed)
{
    enum err_code code;
    struct settings s;
    struct err e = {.code = ERR_OK};

    load(&s, domain, address);
    code = server_ca_ensure(&s, renew_only, files, changed, &e);
    settings_free(&s);
    return code;
}

static void read_file(const char *path, char out[static 8192])
{
    assert_true(io_read_text_at(AT_FDCWD, path, out, 8192) > 0);
}

static bool is_same(const char *path, const char *before)
{
    char now[8192];

    read_file(path, now);
    return strcmp(now, before) == 0;
}

static void put(const struct server_ca_files *files, const char *name, const char *text)
{
    CLEANUP_CLOSE int dir = open(files->dir, O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(io_replace_file_at(dir, name, text, strlen(text), 0600), 0);
}

static bool fits(const struct server_ca_files *files, const char *domain, const char *address)
{
    char ca_text[8192], cert_text[8192];
    struct x509_names names;
    X509 *ca, *cert;
    bool good;

    read_file(files->ca, ca_text);
    read_file(files->cert, cert_text);
    ca = x509_read(ca_text);
    cert = x509_read(cert_text);
    assert_true(x509_names_of(domain, address, &names));
    good = ca && cert && x509_fits(ca, cert, &names);
    X509_free(ca);
    X509_free(cert);
    return good;
}

static void test_made_once(void **state)
{
    struct server_ca_files files;
    char ca[8192], cert[8192];
    struct stat st;
    bool changed;
    time_t end;

    assert_int_equal(ensure("cay.localhost:3000", "localhost", false, &files, &changed), ERR_OK);
    assert_true(changed && fits(&files, "cay.localhost", "localhost"));
    assert_int_equal(stat(files.key, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(server_ca_end(&files, &end), 0);
    assert_true(end > time(NULL) + (SERVER_CA_LEAF_DAYS - 1) * (time_t)DAY_S);
    read_file(files.ca, ca);
    read_file(files.cert, cert);
    assert_int_equal(ensure("cay.localhost:4000", "localhost", false, &files, &changed), ERR_OK);
    assert_false(changed);
    assert_true(is_same(files.ca, ca) && is_same(files.cert, cert));
}

/* The authority goes too, for its constraints do not allow the new names; below localhost it stays. */
static void test_other_names(void **state)
{
    struct server_ca_files files;
    char ca[8192];
    bool changed;

    server_ca_paths(home, &files);
    read_file(files.ca, ca);
    assert_int_equal(ensure("other.localhost", "localhost", false, &files, &changed), ERR_OK);
    assert_true(changed && is_same(files.ca, ca) && fits(&files, "other.localhost", "localhost"));
    assert_int_equal(ensure("boxes.example.org:443", "192.0.2.7", true, &files, &changed), ERR_OK);
    assert_false(changed); /* a server that runs keeps its own */
    assert_int_equal(ensure("boxes.example.org:443", "192.0.2.7", false, &files, &changed), ERR_OK);
    assert_true(changed && !is_same(files.ca, ca));
    assert_true(fits(&files, "boxes.example.org", "192.0.2.7"));
    assert_false(fits(&files, "boxes.example.com", "192.0.2.7"));
    assert_int_equal(ensure("cay.localhost", "localhost", false, &files, &changed), ERR_OK);
}

/* A certificate that ends in ten days, put there in the place of the good one. */
static void test_renewed_before_its_end(void **state)
{
    struct x509_pair ca = {.cert = NULL}, leaf = {.cert = NULL};
    char ca_text[8192], key_text[8192], *cert_pem, *key_pem;
    struct server_ca_files files;
    struct x509_names names;
    bool changed;
    time_t end;

    server_ca_paths(home, &files);
    read_file(files.ca, ca_text);
    snprintf(key_text, sizeof(key_text), "%s/ca.key", files.dir);
    assert_true(io_read_text_at(AT_FDCWD, key_text, key_text, sizeof(key_text)) > 0);
    assert_true(x509_pair_read(ca_text, key_text, &ca));
    assert_true(x509_names_of("cay.localhost", "localhost", &names));
    assert_true(x509_issue(&ca, &names, 10, &leaf));
    cert_pem = x509_pem(leaf.cert);
    key_pem = x509_key_pem(leaf.key);
    put(&files, "cert.pem", cert_pem);
    put(&files, "key.pem", key_pem);
    assert_true(fits(&files, "cay.localhost", "localhost"));
    assert_int_equal(ensure("cay.localhost", "localhost", true, &files, &changed), ERR_OK);
    assert_true(changed && is_same(files.ca, ca_text));
    assert_int_equal(server_ca_end(&files, &end), 0);
    assert_true(end > time(NULL) + SERVER_CA_RENEW * (time_t)DAY_S);
    free(cert_pem);
    x509_key_pem_free(key_pem);
    x509_pair_free(&ca);
    x509_pair_free(&leaf);
}

static void test_broken_pair_is_made_anew(void **state)
{
    struct server_ca_files files;
    bool changed;

    server_ca_paths(home, &files);
    put(&files, "key.pem", "x");
    assert_int_equal(ensure("cay.localhost", "localhost", false, &files, &changed), ERR_OK);
    assert_true(changed && fits(&files, "cay.localhost", "localhost"));
}

static void test_operators_own(void **state)
{
    char cert[] = "--listen-tls-cert=/a", key[] = "--listen-tls-key=/b", off[] = "--listen-tls=off",
         program[] = "test";
    char *named[] = {program, cert, key, NULL}, *none[] = {program, off, NULL};
    struct settings s;
    int argc = 3;

    assert_int_equal(settings_load(&s, "/dev/null", &argc, named, NULL), ERR_OK);
    assert_false(server_ca_is_wanted(&s));
    settings_free(&s);
    argc = 2;
    assert_int_equal(settings_load(&s, "/dev/null", &argc, none, NULL), ERR_OK);
    assert_false(server_ca_is_wanted(&s));
    assert_string_equal(s.server_domain, "cay.localhost:3000");
    settings_free(&s);
}

static void test_refused(void **state)
{
    static const char *const domains[] = {"a,DNS:b", "a b", "", ".a", "a..b", "*.a", "a\n"};
    struct server_ca_files files;
    struct x509_names names;
    bool changed;

    for (size_t i = 0; i < ARRAY_SIZE(domains); i++)
        assert_false(x509_names_of(domains[i], "localhost", &names));
    assert_int_equal(ensure("a,DNS:b", "localhost", false, &files, &changed), ERR_INVALID);
    assert_int_equal(chmod(home, 0777), 0);
    assert_int_equal(ensure("cay.localhost", "localhost", false, &files, &changed), ERR_DENIED);
    assert_int_equal(chmod(home, 0755), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_once),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_renewed_before_its_end),
        cmocka_unit_test(test_broken_pair_is_made_anew),
        cmocka_unit_test(test_operators_own),
        cmocka_unit_test(test_refused),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP the directory has to be root's");
        return 0;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
