/* Volumes in sandboxes: what a create asks for, which sandbox has which, and what privd and the
 * agent are told of it. Called by create.c, keep.c and fork.c. */

#include "core/core_internal.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/volume_obj.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* -- which sandbox has which ------------------------------------------------------------------- */

static bool reads_only(const json_t *mount)
{
    return json_is_true(json_object_get(mount, "readOnly"));
}

bool volumes_any_writable(const json_t *mounts)
{
    const json_t *m;
    size_t i;

    json_array_foreach ((json_t *)mounts, i, m)
        if (!reads_only(m))
            return true;
    return false;
}

static const json_t *mount_of(const json_t *mounts, const char *id)
{
    const json_t *m;
    size_t i;

    json_array_foreach ((json_t *)mounts, i, m)
        if (strcmp(json_string_value(json_object_get(m, "volume")), id) == 0)
            return m;
    return NULL;
}

/* Whether it has none: its files alone are there. */
static bool is_kept(const struct sandbox_obj *o)
{
    const struct life *life = sandbox_life(o);

    return life->files && life->change == LIFE_CHANGE_NONE;
}

const struct sandbox_obj *volume_user(const struct volume_obj *v, const struct sandbox *but,
                                      const json_t *wanted)
{
    for (const struct sandbox_obj *o = v->tenant->sandboxes; o; o = o->tenant_next) {
        const json_t *m = mount_of(o->s.volumes, v->v.id);

        if (!m || &o->s == but || !sandbox_life(o)->counted)
            continue;
        if (!wanted || (!is_kept(o) && (!reads_only(m) || !reads_only(wanted))))
            return o;
    }
    return NULL;
}

json_t *core_volume_users(struct core *c, const struct volume *v)
{
    const struct volume_obj *o = volume_get(c, v->id);
    json_t *all = json_array();

    for (const struct sandbox_obj *s = o ? o->tenant->sandboxes : NULL; s; s = s->tenant_next)
        if (sandbox_life(s)->counted && mount_of(s->s.volumes, v->id))
            json_array_append_new(all, json_string(s->s.id));
    return all;
}

static enum err_code check_one(struct core *c, const char *tenant, const struct sandbox *of,
                               const json_t *mount, struct err *e)
{
    const char *id = json_string_value(json_object_get(mount, "volume"));
    const char *name = json_string_value(json_object_get(mount, "name"));
    const struct volume_obj *v = volume_find(c, tenant, id, true);
    const struct sandbox_obj *user = v ? volume_user(v, of, mount) : NULL;

    if (!v)
        return err_set(e, ERR_NOT_FOUND, "volume '%.100s' is not there any more", name);
    if (!user)
        return ERR_OK;
    if (sandbox_life(user)->kill == LIFE_CALL_UNDER_WAY)
        return err_set(e, ERR_CONFLICT,
                       "volume '%.100s' is in use by sandbox %s, which is just ending: try again",
                       v->v.name, user->s.id);
    err_set(e, ERR_CONFLICT, "volume '%.100s' is in use by sandbox %s, which %s it", v->v.name,
            user->s.id, reads_only(mount_of(user->s.volumes, id)) ? "reads" : "may write to");
    err_hint(
        e, "one sandbox at a time may write to a volume, or several read it (\"readOnly\"): end or "
           "pause that one with its files alone, or mount it read-only in both");
    return ERR_CONFLICT;
}

enum err_code volumes_check(struct core *c, const char *tenant, const struct sandbox *of,
                            const json_t *mounts, struct err *e)
{
    const json_t *m;
    size_t i;

    json_array_foreach ((json_t *)mounts, i, m)
        if (check_one(c, tenant, of, m, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

int volumes_fill(struct core *c, const char *tenant, const json_t *mounts, struct privsep_msg *m)
{
    const json_t *one;
    size_t i;

    json_array_foreach ((json_t *)mounts, i, one) {
        const char *id = json_string_value(json_object_get(one, "volume"));
        const struct volume_obj *v = volume_find(c, tenant, id, true);

        if (!v || i >= PRIVSEP_CREATE_VOLUMES)
            return -ENOENT;
        m->u.create.volumes[i].number = v->v.number;
        m->u.create.volumes[i].flags = reads_only(one) ? PRIVSEP_MOUNT_READ_ONLY : 0;
        keep_owner(v->v.id, m->u.create.volume_owners[i]);
    }
    return 0;
}

json_t *volumes_links(const json_t *mounts)
{
    json_t *out = json_array(), *m;
    size_t i;

    json_array_foreach ((json_t *)mounts, i, m)
        if (json_array_append_new(out, json_pack("{s:O, s:I}", "path", json_object_get(m, "path"),
                                                 "place", (json_int_t)i)) < 0) {
            json_decref(out);
            return NULL;
        }
    return out;
}

/* -- what a create asks for -------------------------------------------------------------------- */

/* Absolute, of whole names: no ".." leads elsewhere, and nothing of the sandbox's own machinery is
 * hidden. */
static bool is_path(const char *path)
{
    static const char *const kept[] = {"/proc", "/sys", "/dev", "/run/volumes"};
    size_t n = strlen(path);

    if (path[0] != '/' || n < 2 || n >= CORE_VOLUME_PATH_SIZE || path[n - 1] == '/')
        return false;
    for (const char *p = path; *p; p += 1 + strcspn(p + 1, "/")) {
        size_t part = strcspn(p + 1, "/");

        if (part == 0 || (part == 1 && p[1] == '.') || (part == 2 && p[1] == '.' && p[2] == '.'))
            return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
        size_t len = strlen(kept[i]);

        if (strncmp(path, kept[i], len) == 0 && (!path[len] || path[len] == '/'))
            return false;
    }
    return true;
}

/* Whether one path is the other, or below it: a link would stand on the other volume then. */
static bool is_nested(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b), n = la < lb ? la : lb;

    return strncmp(a, b, n) == 0 && (la == lb || (la < lb ? b : a)[n] == '/');
}

/* "NAME:ro" is NAME, read only: no name has a colon, and the SDKs have no other way to say it. */
static bool take_name(const char *text, char out[static CORE_VOLUME_NAME_SIZE + 1])
{
    size_t n = strlen(text);
    bool only = n > 3 && strcmp(text + n - 3, ":ro") == 0;

    (void)snprintf(out, CORE_VOLUME_NAME_SIZE + 1, "%.*s", (int)(only ? n - 3 : n), text);
    return only;
}

static enum err_code resolve_one(struct core *c, const char *tenant, const json_t *requested,
                                 json_t *out, struct err *e)
{
    const char *text = json_string_value(json_object_get(requested, "name"));
    const char *path = json_string_value(json_object_get(requested, "path"));
    char name[CORE_VOLUME_NAME_SIZE + 1] = "";
    const json_t *other, *only = json_object_get(requested, "readOnly");
    bool read_only = (text && take_name(text, name)) || json_is_true(only);
    const struct volume_obj *v;
    size_t i;

    if (!text || !path || (only && !json_is_boolean(only)))
        return err_set(
            e, ERR_INVALID,
            "volumeMounts: each has a \"name\" and a \"path\", and may have \"readOnly\"");
    if (!is_path(path))
        return err_set(
            e, ERR_INVALID,
            "volumeMounts: \"%.100s\" is no path to mount at: it has to be absolute, without "
            "\".\", \"..\" and a slash at its end, of at most %d bytes, and not in /proc, "
            "/sys, /dev or /run/volumes",
            path, CORE_VOLUME_PATH_SIZE - 1);
    v = volume_find(c, tenant, name, true);
    if (!v)
        return err_set(e, ERR_NOT_FOUND, "there is no volume '%.100s'", name);
    json_array_foreach (out, i, other)
        if (strcmp(json_string_value(json_object_get(other, "volume")), v->v.id) == 0 ||
            is_nested(json_string_value(json_object_get(other, "path")), path))
            return err_set(e, ERR_INVALID,
                           "volumeMounts: '%.100s' at %.100s: this volume or path is there "
                           "already, or one of the paths is below another",
                           name, path);
    return json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:b}", "volume", v->v.id, "name",
                                                v->v.name, "path", path, "readOnly", read_only)) < 0
               ? err_set(e, ERR_EXHAUSTED, "memory is out")
               : ERR_OK;
}

enum err_code volumes_resolve(struct core *c, const char *tenant, const json_t *requested,
                              json_t **out, struct err *e)
{
    enum err_code code = ERR_OK;
    json_t *all, *one;
    size_t i;

    *out = NULL;
    if (json_array_size(requested) == 0)
        return ERR_OK;
    if (json_array_size(requested) > PRIVSEP_CREATE_VOLUMES)
        return err_set(e, ERR_INVALID, "volumeMounts: %zu volumes; a sandbox can have %d",
                       json_array_size(requested), PRIVSEP_CREATE_VOLUMES);
    all = json_array();
    json_array_foreach ((json_t *)requested, i, one)
        if (code == ERR_OK)
            code = resolve_one(c, tenant, one, all, e);
    if (code == ERR_OK)
        *out = json_incref(all);
    json_decref(all);
    return code;
}
