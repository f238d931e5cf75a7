#include "core/template_absent.h"

#include "core/core_internal.h"
#include "core/key.h"
#include "core/publish.h"
#include "core/template.h"

#include <stdio.h>
#include <string.h>

#define NAMES_BYTES 200u /* the error has room for the rest of its sentence beside them */

/* Names that integrations ask for by default, and forms that are not names of templates. */
static const struct {
    const char *part, *hint;
} absent[] = {
    {"code-interpreter",
     "`cay template build code-interpreter` makes the code interpreter, for the key's tenant"},
    {"mcp-gateway", "the MCP gateway is not there: run MCP servers in a sandbox of base, and reach "
                    "their ports by host name"},
    {"desktop", "there is no desktop template: `cay template build NAME DIR` builds on base"},
    {"/", "the operator makes templates of images: `cay template import NAME SOURCE`"},
    {":", "the operator makes templates of images: `cay template import NAME SOURCE`"},
};

static const char *hint_for(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(absent); i++)
        if (strstr(name, absent[i].part))
            return absent[i].hint;
    return "see `cay template ls`";
}

/* -- those that there are ---------------------------------------------------------------------- */

/* From the first that has no room on they are counted. */
struct names {
    char text[NAMES_BYTES];
    size_t used, left_out;
};

static void add(struct names *n, const char *name, const char *tag)
{
    size_t room = sizeof(n->text) - n->used;
    int len = snprintf(n->text + n->used, room, "%s%s%s%s", n->used ? ", " : "", name,
                       tag[0] ? ":" : "", tag);

    if (n->left_out || len < 0 || (size_t)len >= room) {
        n->text[n->used] = '\0';
        n->left_out++;
    } else {
        n->used += (size_t)len;
    }
}

/* By a name that a create takes: without a tag that is the default's. */
static bool add_build(void *arg, const struct build *b)
{
    char tags[CORE_BUILD_TAGS_SIZE], *rest = tags, *one;
    const char *tag = "";

    if (b->state != BUILD_READY)
        return true;
    memcpy(tags, b->tags, sizeof(tags));
    while ((one = strsep(&rest, ",")))
        if (*one && (!*tag || strcmp(one, CORE_BUILD_TAG) == 0))
            tag = one;
    if (*tag)
        add(arg, b->name, strcmp(tag, CORE_BUILD_TAG) == 0 ? "" : tag);
    return true;
}

static bool add_snapshot(void *arg, const struct snapshot *s)
{
    if (s->name[0])
        add(arg, s->name, "");
    return true;
}

static void add_public(void *arg, const struct core_public_template *t)
{
    add(arg, t->name, "");
}

/* The tenant's own first, of which there can be more than the error has room for. */
static void list_names(struct core *c, const char *tenant, struct names *out)
{
    core_build_each(c, tenant, NULL, add_build, out);
    core_snapshot_each(c, tenant, NULL, NULL, add_snapshot, out);
    if (strcmp(tenant, CORE_OPERATOR_TENANT) != 0)
        core_template_each_public(c, add_public, out);
    for (size_t i = 0; i < TEMPLATES_SERVER; i++)
        if (c->templates->info[i].id)
            add(out, c->templates->info[i].id, "");
}

enum err_code template_absent(struct core *c, const char *tenant, const char *name, struct err *e)
{
    struct names names = {.used = 0};
    char more[48] = "";

    list_names(c, tenant, &names);
    if (names.left_out)
        (void)snprintf(more, sizeof(more), " and %zu more", names.left_out);
    err_set(e, ERR_NOT_FOUND, "there is no template '%.64s'; there are: %s%s", name ? name : "",
            names.text, more);
    err_hint(e, "%s", hint_for(name));
    return ERR_NOT_FOUND;
}
