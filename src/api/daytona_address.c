/* Where clients of Daytona's SDKs reach what is beside this API: the toolbox, the ports of a
 * sandbox (with a token, or signed for a time), and what its config call says of them. A handler
 * that is about a sandbox finds it among those of the caller's tenant (daytona_find answers where
 * there is none); none waits. */

#include "api/daytona.h"
#include "base/clock.h"
#include "base/port.h"
#include "core/archive.h"
#include "core/ingress.h"
#include "core/signed_end.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS_BYTES 512 /* beyond any host name */

void daytona_toolbox_url(struct api_call *call)
{
    if (daytona_find(call))
        api_reply_json(call, 200, json_pack("{s:o}", "url", daytona_toolbox_address(call)));
}

/* The domain of sandboxes' host names: the one set, or localhost with the port that the client has
 * used. */
static void domain_of(const struct api_call *call, char *out, size_t size)
{
    const char *domain = api_config_of(call->api)->domain;
    const char *port = strrchr(call->request->host, ':');

    if (domain && *domain)
        snprintf(out, size, "%s", domain);
    else
        snprintf(out, size, "localhost%s", port && !strchr(port, ']') ? port : "");
}

/* 0: the call was answered. */
static uint16_t port_of(struct api_call *call)
{
    uint16_t port = port_from_text(call->params[1]);

    if (!port)
        api_fail(call, 400, "the port must be a number of 1 to 65535");
    return port;
}

/* signature: the text behind the id; "" for none. */
static json_t *port_url(const struct api_call *call, const struct sandbox *s, uint16_t port,
                        const char *signature)
{
    char domain[ADDRESS_BYTES], url[ADDRESS_BYTES + 128];

    domain_of(call, domain, sizeof(domain));
    snprintf(url, sizeof(url), "%s://%u-%s%s.%s",
             api_config_of(call->api)->https ? "https" : "http", port, s->id, signature, domain);
    return json_string(url);
}

/* The token opens the sandbox's ports, and nothing else of it (gateway/access.h). */
void daytona_preview_url(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    char agent[CORE_TOKEN_SIZE + 1], token[CORE_TOKEN_SIZE + 1];
    uint16_t port = s ? port_of(call) : 0;

    if (!port)
        return;
    core_sandbox_token(call->core, s->id, agent);
    ingress_traffic_token(agent, token);
    api_reply_json(call, 200,
                   json_pack("{s:s, s:o, s:s}", "sandboxId", s->id, "url",
                             port_url(call, s, port, ""), "token", token));
}

/* Seconds of ?expiresInSeconds=; 0: the call was answered. */
static int64_t signed_for_s(struct api_call *call)
{
    char text[16], *end;
    long s;

    if (!api_call_query(call, "expiresInSeconds", text, sizeof(text)))
        return 0;
    s = text[0] ? strtol(text, &end, 10) : DAYTONA_SIGNED_DEFAULT_S;
    if (text[0] && (*end || s < 1 || s > DAYTONA_SIGNED_MAX_S)) {
        api_fail(call, 400, "expiresInSeconds must be a number of 1 to %u", DAYTONA_SIGNED_MAX_S);
        return 0;
    }
    return s;
}

/* Opens a port of the sandbox for a time, without a header or a cookie; never the agent's port,
 * which gives access to all of it. */
void daytona_signed_preview_url(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    char agent[CORE_TOKEN_SIZE + 1], signature[INGRESS_SIGNED_LEN + 1];
    char token[IDS_SANDBOX_SIZE + INGRESS_SIGNED_LEN];
    uint16_t port = s ? port_of(call) : 0;
    int64_t for_s = port ? signed_for_s(call) : 0;

    if (!for_s)
        return;
    if (!ingress_may_sign(port)) {
        api_fail(call, 403, "port %u is that of the sandbox's agent: there is no address for it",
                 port);
        return;
    }
    core_sandbox_token(call->core, s->id, agent);
    ingress_sign_port(agent, port, clock_real_ms() / 1000 + for_s, signature);
    snprintf(token, sizeof(token), "%s%s", s->id, signature);
    api_reply_json(call, 200,
                   json_pack("{s:s, s:i, s:s, s:o}", "sandboxId", s->id, "port", (int)port, "token",
                             token, "url", port_url(call, s, port, signature)));
}

/* POST .../signed-preview-url/{token}/expire. A client may have the token alone, with the id in
 * front, as signed-preview-url gives it. */
void daytona_end_signed(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    const char *token = call->params[2];
    uint16_t port = s ? port_of(call) : 0;
    struct err e;

    if (!port)
        return;
    if (strncmp(token, s->id, strlen(s->id)) == 0)
        token += strlen(s->id);
    if (core_signed_end(call->core, call->who.tenant, s->id, port, token, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_empty(call, 200);
}

/* -- the server -------------------------------------------------------------------------------- */

/* Clients' models are strict: what the contract requires and this server does not have (a
 * dashboard, an issuer of tokens, linked accounts) is there, and empty. */
static json_t *config_json(json_t *toolbox, const char *template)
{
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s}, s:b, s:b, s:{}, s:I}",
                     "version", "cay", "proxyToolboxUrl", toolbox, "proxyTemplateUrl", template,
                     "defaultSnapshot", DAYTONA_SNAPSHOT, "environment", "production",
                     "dashboardUrl", "", "oidc", "issuer", "", "clientId", "", "audience", "",
                     "linkedAccountsEnabled", false, "maintananceMode", false, "announcements",
                     "maxAutoArchiveInterval",
                     (json_int_t)(CORE_ARCHIVE_MAX_MS / DAYTONA_MINUTE_MS));
}

void daytona_config(struct api_call *call)
{
    char domain[ADDRESS_BYTES], template[ADDRESS_BYTES + 64];
    const char *proto = api_config_of(call->api)->https ? "https" : "http";

    domain_of(call, domain, sizeof(domain));
    snprintf(template, sizeof(template), "%s://{{PORT}}-{{sandboxId}}.%s", proto, domain);
    api_reply_json(call, 200, config_json(daytona_toolbox_address(call), template));
}
