/* A step of the build: compares the routes of all dialects of the API and of MCP with the table of
 * docs/tenants.md, which says what a key of each role may call, and which the tests of tenants
 * walk. A route without its row, at the same place, ends the build. */
#include "api/api.h"
#include "base/util.h"
#include "mcp/http.h"

#include <stdio.h>
#include <string.h>

#define PAGE_MAX (64u * 1024u)

struct check {
    const char *name; /* of the page */
    const char *at;   /* its next row; NULL: it lacks one, and that was said */
};

static const char *may(enum core_role role, const struct api_route *r)
{
    return r->access == API_OPEN ? "no key" : api_role_may(role, r->access) ? "yes" : "403";
}

static void compare(void *arg, const struct api_route *r)
{
    struct check *c = arg;
    char row[256];
    int n;

    if (!c->at)
        return;
    n = snprintf(row, sizeof(row), "| `%s` | `%s` | %s | %s | %s |\n", r->method, r->pattern,
                 may(CORE_ROLE_OPERATOR, r), may(CORE_ROLE_OWNER, r), may(CORE_ROLE_READ_ONLY, r));
    if (n > 0 && (size_t)n < sizeof(row) && strncmp(c->at, row, (size_t)n) == 0) {
        c->at += n;
        return;
    }
    fprintf(stderr, "%s: the table of routes lacks, in its place (docs/extending.md): %s", c->name,
            row);
    c->at = NULL;
}

/* Behind the mark, the head and the line below it. */
static const char *first_row(const char *page)
{
    const char *at = strstr(page, "<!-- table: routes -->\n");

    for (int i = 0; at && i < 3; i++)
        if ((at = strchr(at, '\n')))
            at++;
    return at;
}

static bool has_every_route(const char *name, const char *page)
{
    const struct api_route *const tables[] = {http_mcp_routes, http_metadata_routes};
    struct check c = {name, first_row(page)};

    if (!c.at) {
        fprintf(stderr, "%s: it has no table of routes\n", name);
        return false;
    }
    api_each_route(compare, &c);
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
        for (const struct api_route *r = tables[i]; r->method; r++)
            compare(&c, r);
    if (c.at && strncmp(c.at, "<!-- end -->", 12) != 0) {
        fprintf(stderr, "%s: the table of routes has one that there is not: %.*s\n", name,
                (int)strcspn(c.at, "\n"), c.at);
        c.at = NULL;
    }
    return c.at != NULL;
}

/* check-routes PAGE STAMP */
int main(int argc, char **argv)
{
    static char page[PAGE_MAX];
    FILE *f = argc == 3 ? fopen(argv[1], "re") : NULL;

    if (!f) {
        fprintf(stderr, "check-routes: PAGE and STAMP are wanted, and PAGE must be there\n");
        return 2;
    }
    page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
    fclose(f);
    if (!has_every_route(argv[1], page))
        return 1;
    f = fopen(argv[2], "we");
    return f && fclose(f) == 0 ? 0 : 2;
}
