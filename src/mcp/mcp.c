#include "mcp/http.h"
#include "mcp/request.h"
#include "mcp/tool.h"

#include <string.h>

#define SWEEPS_A_TIME 4u /* of keep_ms */
#define SWEEP_MAX_MS  60000u
#define SWEEP_MIN_MS  250u

struct tables {
    const struct api_route *endpoint[2], *metadata[2];
};

static const struct tables tables = {{http_mcp_routes, NULL}, {http_metadata_routes, NULL}};

static void on_sweep(uv_timer_t *t)
{
    struct mcp *m = t->data;

    if (core_is_ready(m->core))
        session_sweep(m->sessions, m->config.keep_ms);
}

static int start_sweep(struct mcp *m, uv_loop_t *loop)
{
    uint64_t every = MAX(MIN(m->config.keep_ms / SWEEPS_A_TIME, SWEEP_MAX_MS), SWEEP_MIN_MS);

    m->sweep = calloc(1, sizeof(*m->sweep));
    if (!m->sweep)
        return -1;
    uv_timer_init(loop, m->sweep);
    m->sweep->data = m;
    uv_timer_start(m->sweep, on_sweep, every, every);
    return 0;
}

static void set_dialects(struct mcp *m)
{
    m->endpoint = (struct api_dialect){.prefix = "/mcp",
                                       .tables = tables.endpoint,
                                       .error = http_mcp_error,
                                       .admit = http_mcp_admit,
                                       .owner = m};
    m->metadata = m->endpoint;
    m->metadata.prefix = "/.well-known/oauth-protected-resource";
    m->metadata.tables = tables.metadata;
    m->dialects[0] = &m->endpoint;
    m->dialects[1] = &m->metadata;
}

void mcp_free(struct mcp *m)
{
    if (!m)
        return;
    sessions_free(m->sessions);
    for (size_t i = 0; i < ARRAY_SIZE(m->shown); i++)
        json_decref(m->shown[i]);
    free(m);
}

enum err_code mcp_new(struct core *c, uv_loop_t *loop, const struct mcp_config *config,
                      struct mcp **out, struct err *e)
{
    struct mcp *m = calloc(1, sizeof(*m));

    if (m) {
        m->sessions = sessions_new(c);
        for (size_t i = 0; i < ARRAY_SIZE(m->shown); i++)
            m->shown[i] = tools_shown(i == 1);
    }
    if (!m || !m->sessions || !m->shown[0] || !m->shown[1]) {
        mcp_free(m);
        return err_set(e, ERR_EXHAUSTED, "no memory for MCP's sessions and tools");
    }
    m->core = c;
    m->config = *config;
    set_dialects(m);
    if (start_sweep(m, loop) < 0) {
        mcp_free(m);
        return err_set(e, ERR_EXHAUSTED, "no memory for MCP's sessions");
    }
    *out = m;
    return ERR_OK;
}

static void on_closed(uv_handle_t *h)
{
    free(h);
}

void mcp_stop(struct mcp *m)
{
    if (m->sweep)
        uv_close((uv_handle_t *)TAKE_PTR(m->sweep), on_closed);
}

const struct api_dialect *const *mcp_dialects(const struct mcp *m)
{
    return m->dialects;
}
