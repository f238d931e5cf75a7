/* The sandbox that a query is about: by its id, by a key and a name, by a signed file's URL, or by
 * searching whose token made a signature. Refuses what is not there, or is not the requester's. */

#include "base/arena.h"
#include "base/clock.h"
#include "core/key.h"
#include "core/list.h"
#include "core/role.h"
#include "gateway/resolve_internal.h"

#include <stdio.h>
#include <string.h>

/* A signed URL without an id costs one hash per sandbox, and the client has shown no key yet: so
 * many searches and hashes a second are enough for downloads by browsers, and too few to keep the
 * loop busy. A search that was begun goes through all sandboxes. */
#define SEARCHES_PER_SECOND 50u
#define HASHES_PER_SECOND   50000u
#define SEARCH_PAGE         1000u
#define SEARCH_ARENA_BYTES  (64u * 1024u)

static bool may_search(struct gateway_resolver *r)
{
    uint64_t now_ms = clock_mono_ms();

    if (now_ms - r->window_ms >= 1000) {
        r->window_ms = now_ms;
        r->searches = r->hashes = 0;
    }
    return r->searches++ < SEARCHES_PER_SECOND && r->hashes < HASHES_PER_SECOND;
}

/* The next page of the search: true when there is one more. f goes on behind its last sandbox. */
static bool search_page(struct gateway_resolver *r, const struct gateway_query *q,
                        struct sandbox_filter *f, const struct sandbox **found)
{
    CLEANUP_ARENA struct arena arena;
    struct sandbox_page page = {0};
    char token[CORE_TOKEN_SIZE + 1];
    struct err e;

    arena_init(&arena, SEARCH_ARENA_BYTES);
    if (core_sandbox_list(r->core, f, &arena, &page, &e) != ERR_OK)
        return false;
    for (size_t i = 0; i < page.count && !*found; i++) {
        core_sandbox_token(r->core, page.items[i]->id, token);
        r->hashes++;
        if (access_signature_matches(&q->access, token))
            *found = page.items[i];
    }
    if (!page.more || page.count == 0)
        return false;
    f->cursor_ms = page.items[page.count - 1]->started_real_ms;
    f->cursor_id = page.items[page.count - 1]->id;
    return true;
}

/* The sandbox whose token made the signature; NULL with the answer filled in. */
static const struct sandbox *search(struct gateway_resolver *r, const struct gateway_query *q,
                                    struct gateway_answer *a)
{
    struct sandbox_filter f = {.limit = SEARCH_PAGE};
    const struct sandbox *found = NULL;

    if (!may_search(r)) {
        resolve_refuse(a, 429, false,
                       "too many signed URLs without a sandbox's host name; use PORT-ID.DOMAIN");
        return NULL;
    }
    while (!found && search_page(r, q, &f, &found))
        ;
    if (!found)
        resolve_refuse(a, 401, false, "invalid signature");
    return found;
}

/* A sandbox of the key's tenant. That of another is answered as one that is not there. A
 * ROUTE_KEYED query opens the whole of a sandbox, as its token does, and is allowed to the roles
 * that may read the token. */
static const struct sandbox *find_keyed(struct gateway_resolver *r, const struct gateway_query *q,
                                        struct gateway_answer *a)
{
    struct core_identity who = {.role = CORE_ROLE_NONE};
    const struct sandbox *s;
    char message[ACCESS_MESSAGE_SIZE];
    struct err e;

    if (core_authenticate(r->core, q->access.key, &who, &e) != ERR_OK) {
        resolve_refuse(a, 401, false, e.text);
        return NULL;
    }
    if (!role_may(who.role, ROLE_WRITE)) {
        snprintf(message, sizeof(message), "a key of role %s does not open sandboxes",
                 core_role_name(who.role));
        resolve_refuse(a, 403, false, message);
        return NULL;
    }
    s = core_sandbox_find(r->core, who.tenant, q->name);
    if (!s)
        s = core_sandbox_find_named(r->core, who.tenant, q->name);
    if (!s) {
        snprintf(message, sizeof(message), "Sandbox with ID or name %s not found", q->name);
        resolve_refuse(a, 404, false, message);
    }
    return s;
}

/* The sandbox of the id, where its key has made the signature. An unknown sandbox is answered as a
 * wrong signature, after the same work: its token and key are made from the id alone. */
static const struct sandbox *find_file_url(struct gateway_resolver *r,
                                           const struct gateway_query *q, struct gateway_answer *a)
{
    const struct sandbox *s = core_sandbox_find(r->core, NULL, q->id);
    char token[CORE_TOKEN_SIZE + 1], key[FILE_URL_KEY_SIZE];
    char message[ACCESS_MESSAGE_SIZE] = "the sandbox of this URL is not there any more";

    core_sandbox_token(r->core, q->id, token);
    file_url_key(token, s ? s->file_url_number : 0, key);
    if (!access_check_file_url(&q->access, key, clock_real_ms() / 1000, message) || !s) {
        resolve_refuse(a, 401, false, message);
        return NULL;
    }
    return s;
}

const struct sandbox *resolve_find(struct gateway_resolver *r, const struct gateway_query *q,
                                   struct gateway_answer *a)
{
    const struct sandbox *s;

    if (q->kind == ROUTE_SIGNED)
        return search(r, q, a);
    if (q->kind == ROUTE_KEYED)
        return find_keyed(r, q, a);
    if (q->kind == ROUTE_FILE_URL)
        return find_file_url(r, q, a);
    s = core_sandbox_find(r->core, NULL, q->id);
    if (!s) {
        resolve_refuse(a, 502, true, "The sandbox was not found");
        return NULL;
    }
    return s;
}
