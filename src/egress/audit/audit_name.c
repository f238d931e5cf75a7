#include "egress/audit/audit_name.h"

#include <stdio.h>

void audit_name_put_tenant(const char *tenant, char *out, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;

    for (const unsigned char *p = (const unsigned char *)tenant; *p && n + 4 < size; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '-' || *p == '_';

        if (plain) {
            out[n++] = (char)*p;
            continue;
        }
        out[n++] = '%';
        out[n++] = hex[*p >> 4];
        out[n++] = hex[*p & 15];
    }
    out[n] = '\0';
}

bool audit_name_read_tenant(const char *text, size_t n, char *out, size_t size)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned value = (unsigned char)text[i];

        if (len + 1 >= size)
            return false;
        if (text[i] == '%') {
            if (n - i < 3)
                return false;
            if (sscanf(text + i + 1, "%2X", &value) != 1)
                return false;
            i += 2;
        }
        out[len++] = (char)value;
    }
    out[len] = '\0';
    return true;
}
