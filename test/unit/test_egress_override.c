/* Headers that say another method, path or host than a request's first line. */
#include "egress/credential/override.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_names(void **state)
{
    static const char *const left_out[] = {"X-HTTP-Method-Override",
                                           "x_http_method_override",
                                           "X.Original.URL",
                                           "Forwarded",
                                           "X-Original-Host",
                                           "X-Forwarded-Server",
                                           "X-Forwarded-Url",
                                           "X-Forwarded-Original-Url",
                                           "X-Request-Uri",
                                           "X-Http-Url-Override",
                                           "X-Proxy-Url",
                                           "X-Envoy-Original-Path",
                                           "X_Envoy_Original_Host",
                                           "X-Http-Verb",
                                           "X-Verb",
                                           "X-Requested-Method",
                                           "x~tunnel~method"};
    static const char *const passed[] = {
        "X-Forwarded-For", "X-Forwarded-Proto", "X-Requested-With", "X-Request-Id", "Via", "Host"};

    for (size_t i = 0; i < ARRAY_SIZE(left_out); i++)
        if (!override_is(left_out[i]))
            fail_msg("%s passes", left_out[i]);
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
        if (override_is(passed[i]))
            fail_msg("%s is left out", passed[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
