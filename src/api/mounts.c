#include "api/mounts.h"

#include <stdio.h>
#include <string.h>

static enum err_code check_path(const char *field, const char *path, struct err *e)
{
    if (volume_is_path(path))
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "%s: \"%.100s\" is no path to mount at: it has to be absolute, without "
                   "\".\", \"..\" and a slash at its end, of at most %d bytes, and not in /proc, "
                   "/sys, /dev or /run/volumes",
                   field, path, CORE_VOLUME_PATH_SIZE - 1);
}

static enum err_code add(struct mounts *m, const char *field, struct volume_mount *mount,
                         const char *path, struct err *e)
{
    if (m->n == PRIVSEP_CREATE_VOLUMES)
        return err_set(e, ERR_INVALID, "%s: a sandbox can have %d in all", field,
                       PRIVSEP_CREATE_VOLUMES);
    if (check_path(field, path, e) != ERR_OK)
        return e->code;
    mount->path = path;
    m->list[m->n++] = *mount;
    return ERR_OK;
}

/* "NAME:ro" is NAME, read-only: no name has a colon, and the SDKs have no other way to ask for
 * it. */
static void take_name(struct volume_mount *mount, const char *text)
{
    size_t n = strlen(text);
    bool only = n > 3 && strcmp(text + n - 3, ":ro") == 0;

    (void)snprintf(mount->name, sizeof(mount->name), "%.*s", (int)(only ? n - 3 : n), text);
    mount->read_only = mount->read_only || only;
}

enum err_code mounts_add_volume(struct mounts *m, const char *field, const char *name,
                                const char *path, bool read_only, struct err *e)
{
    struct volume_mount mount = {.read_only = read_only};

    take_name(&mount, name);
    return add(m, field, &mount, path, e);
}

/* A misspelt "readOnly" would mount what its owner has asked to be read-only so that it can be
 * written to. */
static enum err_code check_fields(const char *field, const json_t *one, struct err *e)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)one, key, value)
        if (strcmp(key, "name") != 0 && strcmp(key, "path") != 0 && strcmp(key, "readOnly") != 0)
            return err_set(e, ERR_INVALID,
                           "%s: there is no \"%.40s\": each has a \"name\" and a \"path\", and may "
                           "have \"readOnly\"",
                           field, key);
    return ERR_OK;
}

static enum err_code read_one(struct mounts *m, const char *field, const json_t *one, bool of_host,
                              struct err *e)
{
    const char *name = json_string_value(json_object_get(one, "name")),
               *path = json_string_value(json_object_get(one, "path"));
    const json_t *only = json_object_get(one, "readOnly");
    struct volume_mount mount = {.of_host = of_host, .read_only = json_is_true(only)};

    if (!name || !path || (only && !json_is_boolean(only)))
        return err_set(e, ERR_INVALID,
                       "%s: each has a \"name\" and a \"path\", and may have \"readOnly\"", field);
    take_name(&mount, name);
    if (of_host && json_is_false(only) && check_path(field, path, e) == ERR_OK)
        return err_set(e, ERR_INVALID, "%s: '%.100s': they are read-only", field, mount.name);
    return add(m, field, &mount, path, e);
}

static enum err_code read_all(struct mounts *m, const char *field, const json_t *all, bool of_host,
                              bool strict, struct err *e)
{
    json_t *one;
    size_t i;

    json_array_foreach ((json_t *)all, i, one)
        if ((strict && check_fields(field, one, e) != ERR_OK) ||
            read_one(m, field, one, of_host, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

enum err_code mounts_read(struct mounts *m, const json_t *volumes, const json_t *host_dirs,
                          bool strict, struct err *e)
{
    size_t n = json_array_size(volumes) + json_array_size(host_dirs);

    if (n > PRIVSEP_CREATE_VOLUMES)
        return err_set(e, ERR_INVALID,
                       "volumeMounts, hostMounts: %zu of them; a sandbox can have %d in all", n,
                       PRIVSEP_CREATE_VOLUMES);
    if (read_all(m, "volumeMounts", volumes, false, strict, e) != ERR_OK)
        return e->code;
    return read_all(m, "hostMounts", host_dirs, true, true, e);
}
