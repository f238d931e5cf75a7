/* Volumes in sandboxes: the mounts that a create asks for, the volumes that each sandbox has, and
 * their description for privd and the agent. Called by create.c, keep.c and fork.c. A client's
 * words for mounts are read by api (api/mounts.h). */

#include "core/core_internal.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/volume_obj.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SERVES_FIELD "serves" /* of an entry of a sandbox's mounts */

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

    json_array_foreach ((json_t *)mounts, i, m) {
        const char *volume = json_string_value(json_object_get(m, "volume"));

        if (volume && strcmp(volume, id) == 0)
            return m;
    }
    return NULL;
}

/* -- directories of the host ------------------------------------------------------------------- */

/* The number that privd knows it by; 0: there is none of that name for this tenant. */
static uint32_t host_dir_number(const struct core *c, const char *tenant, const char *name)
{
    for (uint32_t i = 0; i < HOST_DIRS_MAX; i++) {
        const struct host_dir *d = &c->config.host_dirs[i];

        if (strcmp(d->name, name) == 0 && host_dir_is_for(d, tenant))
            return i + 1;
    }
    return 0;
}

static enum err_code host_dir_missing(const char *name, struct err *e)
{
    err_set(e, ERR_NOT_FOUND, "there is no directory '%.100s' of the host for sandboxes", name);
    err_hint(e, "the operator of this server names them, in [host] of its settings");
    return e->code;
}

const struct sandbox_obj *volume_user(const struct volume_obj *v, const struct sandbox *but,
                                      const json_t *wanted)
{
    for (const struct sandbox_obj *o = v->tenant->sandboxes; o; o = o->tenant_next) {
        const json_t *m = mount_of(o->s.volumes, v->v.id);

        if (!m || &o->s == but || o->s.serves_volume || sandbox_life(o)->gone)
            continue;
        /* A sandbox whose files alone are there has none of them mounted. */
        if (!wanted || (!life_is_at_rest(o->s.state) && (!reads_only(m) || !reads_only(wanted))))
            return o;
    }
    return NULL;
}

json_t *core_volume_users(struct core *c, const struct volume *v)
{
    const struct volume_obj *o = volume_get(c, v->id);
    json_t *all = json_array();

    for (const struct sandbox_obj *s = o ? o->tenant->sandboxes : NULL; s; s = s->tenant_next)
        if (!sandbox_life(s)->gone && !s->s.serves_volume && mount_of(s->s.volumes, v->id))
            json_array_append_new(all, json_string(s->s.id));
    return all;
}

static enum err_code check_one(struct core *c, const char *tenant, const struct sandbox *of,
                               const json_t *mount, struct err *e)
{
    const char *id = json_string_value(json_object_get(mount, "volume"));
    const char *name = json_string_value(json_object_get(mount, "name"));
    const struct volume_obj *v = id ? volume_find(c, tenant, id, true) : NULL;
    const struct sandbox_obj *user = v ? volume_user(v, of, mount) : NULL;

    if (!id) /* it may have been taken from the settings, or from this tenant, meanwhile */
        return host_dir_number(c, tenant, name) ? ERR_OK : host_dir_missing(name, e);
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
    err_hint(e, "one sandbox at a time may write to a volume, or several read it (\"readOnly\", or "
                ":ro behind its name): end that one, pause it with its files alone, or mount it "
                "read-only in both");
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

static int fill_one(struct core *c, const char *tenant, const json_t *mount,
                    struct privsep_mount *out, uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    const char *id = json_string_value(json_object_get(mount, "volume"));
    const char *name = json_string_value(json_object_get(mount, "name"));
    const struct volume_obj *v = id ? volume_find(c, tenant, id, true) : NULL;

    if (v) {
        *out = (struct privsep_mount){v->v.number, reads_only(mount) ? PRIVSEP_MOUNT_READ_ONLY : 0};
        keep_owner(v->v.id, owner);
    } else {
        uint32_t number = id ? 0 : host_dir_number(c, tenant, name);

        if (!number)
            return -ENOENT;
        *out = (struct privsep_mount){number, PRIVSEP_MOUNT_HOST_DIR};
        memcpy(owner, name, strlen(name)); /* at most PRIVSEP_OWNER_SIZE: it has a number */
    }
    return 0;
}

int volumes_fill(struct core *c, const char *tenant, const json_t *mounts, struct privsep_msg *m)
{
    const json_t *one;
    size_t i;

    json_array_foreach ((json_t *)mounts, i, one)
        if (i >= PRIVSEP_CREATE_VOLUMES ||
            fill_one(c, tenant, one, &m->u.create.volumes[i], m->u.create.volume_owners[i]) < 0)
            return -ENOENT;
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

bool volume_is_path(const char *path)
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

/* `kind`: "volume" or "host", by which an entry names its source. */
static enum err_code append(json_t *out, const struct volume_mount *a, const char *kind,
                            const char *id, const char *name, struct err *e)
{
    const json_t *other;
    size_t i;

    json_array_foreach (out, i, other) {
        const char *same = json_string_value(json_object_get(other, kind));

        if ((same && strcmp(same, id) == 0) ||
            is_nested(json_string_value(json_object_get(other, "path")), a->path))
            return err_set(e, ERR_INVALID,
                           "the mount of '%.100s' at %.100s: this volume, directory or path is "
                           "there already, or one of the paths is below another",
                           name, a->path);
    }
    return json_array_append_new(out,
                                 json_pack("{s:s, s:s, s:s, s:b}", kind, id, "name", name, "path",
                                           a->path, "readOnly", a->read_only || a->of_host)) < 0
               ? err_set(e, ERR_EXHAUSTED, "memory is out")
               : ERR_OK;
}

/* A directory that is not for this tenant is answered as one that is not there. */
static enum err_code resolve(struct core *c, const char *tenant, const struct volume_mount *a,
                             json_t *out, struct err *e)
{
    const struct volume_obj *v;

    if (!volume_is_path(a->path))
        return err_set(e, ERR_INVALID, "\"%.100s\" is no path to mount at", a->path);
    if (a->of_host)
        return host_dir_number(c, tenant, a->name) ? append(out, a, "host", a->name, a->name, e)
                                                   : host_dir_missing(a->name, e);
    v = volume_find(c, tenant, a->name, true);
    return v ? append(out, a, "volume", v->v.id, v->v.name, e) : volume_missing(a->name, e);
}

enum err_code volumes_resolve(struct core *c, const struct sandbox_request *r, json_t **out,
                              struct err *e)
{
    enum err_code code = ERR_OK;
    json_t *all;

    *out = NULL;
    if (r->n_mounts == 0)
        return ERR_OK;
    if (r->n_mounts > PRIVSEP_CREATE_VOLUMES)
        return err_set(e, ERR_INVALID, "%zu mounts; a sandbox can have %d in all", r->n_mounts,
                       PRIVSEP_CREATE_VOLUMES);
    all = json_array();
    for (size_t i = 0; i < r->n_mounts && code == ERR_OK; i++)
        code = resolve(c, r->tenant, &r->mounts[i], all, e);
    if (code == ERR_OK)
        *out = json_incref(all);
    json_decref(all);
    return code;
}

static const char *text_of(const json_t *mount, const char *key)
{
    const char *text = json_string_value(json_object_get(mount, key));

    return text ? text : "";
}

size_t volumes_mounts(const json_t *mounts, struct volume_mount out[static PRIVSEP_CREATE_VOLUMES])
{
    const json_t *m;
    size_t i, n = 0;

    json_array_foreach ((json_t *)mounts, i, m) {
        if (n == PRIVSEP_CREATE_VOLUMES)
            break;
        out[n] = (struct volume_mount){.of_host = json_object_get(m, "host") != NULL,
                                       .read_only = reads_only(m),
                                       .path = text_of(m, "path")};
        (void)snprintf(out[n].name, sizeof(out[n].name), "%s", text_of(m, "name"));
        n++;
    }
    return n;
}

/* -- one that serves a volume's contents ------------------------------------------------------- */

bool volumes_serve(const json_t *mounts)
{
    return json_is_true(json_object_get(json_array_get(mounts, 0), SERVES_FIELD));
}

int volumes_mark_serving(json_t *mounts)
{
    return json_object_set_new(json_array_get(mounts, 0), SERVES_FIELD, json_true()) < 0 ? -ENOMEM
                                                                                         : 0;
}
