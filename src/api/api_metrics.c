#include "api/api_metrics.h"

#include <string.h>

static enum api_metrics_dialect dialect_of(const char *path)
{
    if (strncmp(path, "/api/", strlen("/api/")) == 0)
        return API_METRICS_DAYTONA;
    return strncmp(path, "/cay/", strlen("/cay/")) == 0 ? API_METRICS_CAY : API_METRICS_E2B;
}

void api_metrics_answered(struct api_metrics *m, const char *path, int status, uint64_t took_us)
{
    enum api_metrics_dialect d = dialect_of(path);
    int digit = status / 100;

    m->answered[d][digit > 0 && digit < 6 ? digit : 0]++;
    histogram_add(&m->took[d], took_us);
}
