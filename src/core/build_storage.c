#include "core/build_storage.h"

#include "base/clock.h"
#include "core/build_files_internal.h"
#include "core/core_internal.h"
#include "http/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAC_LEN (2 * DIGEST_SHA256_SIZE)

/* -- tokens ------------------------------------------------------------------------------------ */

/* "OWNER.KEY.UNTIL", which the MAC is of. */
static void make_mac(const struct core *c, const char *text, size_t n, char out[static MAC_LEN + 1])
{
    static const char purpose[] = "object storage:";
    unsigned char mac[DIGEST_SHA256_SIZE];
    char all[sizeof(purpose) + CORE_STORAGE_TOKEN_SIZE];
    int len = snprintf(all, sizeof(all), "%s%.*s", purpose, (int)n, text);

    digest_hmac_sha256(c->server_key, CORE_SERVER_KEY_SIZE, all, (size_t)len, mac);
    ids_hex(mac, sizeof(mac), out);
}

void core_storage_token(struct core *c, const struct core_identity *who, const char *key,
                        char out[static CORE_STORAGE_TOKEN_SIZE])
{
    char owner[CORE_BUILD_OWNER_LEN + 1], key_id[CORE_KEY_ID_SIZE], mac[MAC_LEN + 1];
    int n;

    build_files_owner(who->tenant, owner);
    core_key_id(key, key_id);
    n = snprintf(out, CORE_STORAGE_TOKEN_SIZE, "%s.%s.%lld", owner, key_id,
                 (long long)clock_real_ms() + CORE_STORAGE_MS);
    make_mac(c, out, (size_t)n, mac);
    (void)snprintf(out + n, CORE_STORAGE_TOKEN_SIZE - (size_t)n, ".%s", mac);
}

struct seen_key {
    const char *id;
    bool is_there;
};

static enum err_code see_key(void *arg, const struct core_key *k, struct err *e)
{
    struct seen_key *seen = arg;

    seen->is_there = seen->is_there || strncmp(seen->id, k->id, CORE_KEY_ID_SIZE - 1) == 0;
    return ERR_OK;
}

static enum err_code denied(struct err *e)
{
    return err_set(e, ERR_DENIED,
                   "the session token is none of this server's, its time is over, or its key was "
                   "revoked: ask for push-access again");
}

static enum err_code check_token(struct core *c, const struct core_storage_call *s,
                                 char owner[static CORE_BUILD_OWNER_LEN + 1], struct err *e)
{
    const char *last = strrchr(s->token, '.');
    struct seen_key key = {.id = s->token + CORE_BUILD_OWNER_LEN + 1};
    const char *until = key.id + CORE_KEY_ID_SIZE;
    char mac[MAC_LEN + 1];

    if (!last || strlen(last + 1) != MAC_LEN || last <= until)
        return denied(e);
    make_mac(c, s->token, (size_t)(last - s->token), mac);
    if (!ids_equal_secret(mac, last + 1, MAC_LEN) || strtoll(until, NULL, 10) < clock_real_ms())
        return denied(e);
    build_files_owner(s->tenant, owner);
    if (strncmp(s->token, owner, CORE_BUILD_OWNER_LEN) != 0)
        return err_set(e, ERR_NOT_FOUND, "there is no archive of that name");
    if (core_key_each(c, s->tenant, see_key, &key, e) != ERR_OK || !key.is_there)
        return denied(e);
    return ERR_OK;
}

/* -- parts ------------------------------------------------------------------------------------- */

static struct upload *find_upload(const struct build_files *all, const char *name, const char *id)
{
    struct upload *u = all->uploads;

    while (u &&
           !(u->parts && !u->given_up && strcmp(u->name, name) == 0 && strcmp(u->temp, id) == 0))
        u = u->next;
    return u;
}

static enum err_code no_upload(struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no such upload, or it took too long");
}

static enum err_code begin(struct core *c, const char *owner, const char *hash,
                           struct core_storage_call *s, struct err *e)
{
    uint32_t *parts = calloc(CORE_STORAGE_PARTS_MAX, sizeof(*parts));
    struct upload *u = NULL;
    CLEANUP_CLOSE int fd = -1;

    if (!parts)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (build_files_receive(c, owner, hash, &u, &fd, e) != ERR_OK) {
        free(parts);
        return e->code;
    }
    u->parts = parts;
    memcpy(s->upload, u->temp, sizeof(s->upload));
    return ERR_OK;
}

static enum err_code open_part(const struct build_files *all, struct upload *u,
                               struct core_storage_call *s, struct err *e)
{
    CLEANUP_CLOSE int fd = -1;

    if (s->part < 1 || s->part > CORE_STORAGE_PARTS_MAX)
        return err_set(e, ERR_INVALID, "partNumber: it has to be 1 to %u", CORE_STORAGE_PARTS_MAX);
    if (u->parts_written >= CORE_STORAGE_PARTS_OPEN)
        return err_set(e, ERR_EXHAUSTED, "%u parts are being received: wait for one",
                       u->parts_written);
    fd = openat(all->dir_fd, u->temp, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || lseek(fd, (off_t)(s->part - 1) * CORE_STORAGE_PART_BYTES, SEEK_SET) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "writing a part of what is sent");
    if (core_build_upload_space(fd, e) != ERR_OK)
        return e->code;
    u->parts[s->part - 1] = 0;
    u->parts_written++;
    s->file = (struct core_build_upload){
        .fd = TAKE_FD(fd), .number = u->number, .most_bytes = CORE_STORAGE_PART_BYTES};
    return ERR_OK;
}

enum err_code core_storage_part_end(struct core *c, uint64_t number, unsigned part, uint64_t bytes,
                                    bool whole, struct err *e)
{
    struct upload *u = c->build_files->uploads;

    e->code = ERR_OK;
    while (u && !(u->number == number && u->parts))
        u = u->next;
    if (!u)
        return no_upload(e);
    u->parts_written--;
    if (whole)
        u->parts[part - 1] = (uint32_t)bytes;
    if (!u->given_up)
        return ERR_OK;
    if (u->parts_written == 0)
        build_files_remove_upload(c->build_files, u);
    return no_upload(e);
}

/* All but the last have the same size. */
static enum err_code add_parts(const struct upload *u, uint64_t *bytes, struct err *e)
{
    unsigned n = CORE_STORAGE_PARTS_MAX;

    *bytes = 0;
    while (n > 0 && u->parts[n - 1] == 0)
        n--;
    for (unsigned i = 0; i < n; i++) {
        if (i + 1 < n && u->parts[i] != CORE_STORAGE_PART_BYTES)
            return err_set(e, ERR_CONFLICT,
                           "part %u has %u bytes: all but the last have to have %u", i + 1,
                           u->parts[i], CORE_STORAGE_PART_BYTES);
        *bytes += u->parts[i];
    }
    if (u->parts_written > 0 || *bytes == 0)
        return err_set(e, ERR_CONFLICT, "parts of it are still being received, or there are none");
    return *bytes <= CORE_BUILD_FILE_MAX
               ? ERR_OK
               : err_set(e, ERR_TOO_LARGE, "an archive may have %u bytes", CORE_BUILD_FILE_MAX);
}

/* A part that was sent anew with less leaves the rest of what it was: behind the end it would be on
 * the disk without counting. */
static enum err_code cut(const struct build_files *all, const struct upload *u, uint64_t bytes,
                         struct err *e)
{
    CLEANUP_CLOSE int fd = openat(all->dir_fd, u->temp, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
               ? ERR_OK
               : err_set_sys(e, ERR_INTERNAL, errno, "ending what was sent");
}

static enum err_code complete(struct build_files *all, struct upload *u,
                              struct core_storage_call *s, struct err *e)
{
    e->code = ERR_OK;
    if (add_parts(u, &s->bytes, e) == ERR_OK && cut(all, u, s->bytes, e) == ERR_OK &&
        build_files_keep(all, u, s->bytes, e) == ERR_OK)
        build_files_remove_upload(all, u);
    return e->code;
}

/* While parts of it are being received it goes on to count: what they have written is on the disk.
 * They end with their next byte, as the file has no name any more (core_build_upload_is_gone). */
static void give_up(struct build_files *all, struct upload *u)
{
    u->given_up = true;
    (void)unlinkat(all->dir_fd, u->temp, 0);
    if (u->parts_written == 0)
        build_files_remove_upload(all, u);
}

/* -- calls ------------------------------------------------------------------------------------- */

static enum err_code stat_object(struct build_files *all, const char *name,
                                 struct core_storage_call *s, struct err *e)
{
    struct build_file *f = build_files_find(all, name);

    if (!f)
        return err_set(e, ERR_NOT_FOUND, "there is no archive of that name");
    build_files_use(all, f, clock_real_ms());
    s->bytes = f->bytes;
    s->used_real_ms = f->used_real_ms;
    return ERR_OK;
}

static enum err_code put(struct core *c, const char *owner, const char *hash,
                         struct core_storage_call *s, struct err *e)
{
    struct upload *u = NULL;

    if (build_files_receive(c, owner, hash, &u, &s->file.fd, e) != ERR_OK)
        return e->code;
    s->file.number = u->number;
    s->file.most_bytes = CORE_BUILD_FILE_MAX;
    return ERR_OK;
}

static enum err_code of_upload(struct core *c, const char *name, struct core_storage_call *s,
                               struct err *e)
{
    struct upload *u = find_upload(c->build_files, name, s->upload);

    if (!u)
        return no_upload(e);
    if (s->op == STORAGE_PART)
        return open_part(c->build_files, u, s, e);
    if (s->op == STORAGE_COMPLETE)
        return complete(c->build_files, u, s, e);
    give_up(c->build_files, u);
    return ERR_OK;
}

enum err_code core_storage_call(struct core *c, struct core_storage_call *s, struct err *e)
{
    char owner[CORE_BUILD_OWNER_LEN + 1], name[BUILD_FILES_NAME_SIZE];
    char hash[CORE_BUILD_HASH_MAX + 1];

    if (check_token(c, s, owner, e) != ERR_OK)
        return e->code;
    if (strspn(s->digits, "0123456789abcdef") != CORE_STORAGE_DIGITS)
        return err_set(e, ERR_NOT_FOUND, "there is no archive of that name");
    build_files_sweep(c->build_files);
    (void)snprintf(hash, sizeof(hash), CORE_STORAGE_ZEROS "%s", s->digits);
    build_files_name(owner, hash, name);
    switch (s->op) {
    case STORAGE_STAT: return stat_object(c->build_files, name, s, e);
    case STORAGE_PUT: return put(c, owner, hash, s, e);
    case STORAGE_BEGIN: return begin(c, owner, hash, s, e);
    case STORAGE_PART:
    case STORAGE_COMPLETE:
    case STORAGE_ABORT: break;
    }
    return of_upload(c, name, s, e);
}
