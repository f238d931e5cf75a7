/* template export NAME FILE: FILE is there when it is whole. */
#include "cli/commands.h"
#include "cli/receive.h"
#include "cli/template_image.h"

#include <string.h>
#include <sys/stat.h>

/* A device or a FIFO is written to as it is, and cannot be. */
static enum err_code open_file(struct receive *to, const char *path, struct err *e)
{
    struct stat st;

    if (receive_file(to, path, 0644, e) != ERR_OK)
        return e->code;
    if (fstat(to->fd, &st) == 0 && S_ISREG(st.st_mode))
        return ERR_OK;
    receive_end(to, false, NULL);
    return err_set(e, ERR_INVALID, "%s is no file", path);
}

static enum err_code run(struct cli *c, struct template_image *image, struct err *e)
{
    const char *path = c->operands[1];
    struct receive to;

    if (open_file(&to, path, e) != ERR_OK)
        return e->code;
    if (template_image_write(c, path, to.fd, image, e) == ERR_OK)
        return receive_end(&to, true, e);
    receive_end(&to, false, NULL);
    return e->code;
}

static void report(const struct cli *c, const struct template_image *image)
{
    char size[32];

    table_bytes(image->layer_bytes, size, sizeof(size));
    if (c->json)
        cli_print_json(json_pack("{s:s, s:s, s:I, s:s}", "template", c->operands[0], "file",
                                 c->operands[1], "layerBytes", (json_int_t)image->layer_bytes,
                                 "digest", image->digest));
    else if (!cli_flag(c, "quiet"))
        printf("%s is in %s: %s, %s\n", c->operands[0], c->operands[1], size, image->digest);
}

int cmd_template_export(struct cli *c)
{
    struct template_image image = {.layer_bytes = 0};
    struct err e = {.code = ERR_OK};

    if (run(c, &image, &e) != ERR_OK)
        return cli_fail(c, &e);
    report(c, &image);
    return CLI_OK;
}
