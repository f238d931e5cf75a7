/* The common contents of templates: the two users, sudo without a password, homes, mount points and
 * the command cay-denials. Called by the builds of `host` and `base` (host.c, base.c), with the new
 * root as working directory; paths are relative to it. Runs once for each build, after the packages
 * and before the tree is sealed; present files are replaced, but for the homes', which may be the
 * distribution's. */

#include "contract/proto.h"
#include "job/kinds.h"
#include "job/say.h"
#include "job/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define USER_ID    1000 /* "user": E2B's clients' */
#define DAYTONA_ID 1001 /* "daytona": Daytona's clients' */

static const struct {
    const char *path;
    mode_t mode;
    uid_t uid;
} dirs[] = {
    {"proc", 0555, 0},
    {"sys", 0555, 0},
    {"dev", 0755, 0},
    {"run", 0755, 0},
    {"tmp", 01777, 0},
    {"root", 0700, 0},
    {"home", 0755, 0},
    {"home/user", 0755, USER_ID},
    {"mnt", 0755, 0},
    {"media", 0755, 0},
    {"opt", 0755, 0},
    {"srv", 0755, 0},
    {"var", 0755, 0},
    {"var/tmp", 01777, 0},
    {"etc", 0755, 0},
    {"etc/sudoers.d", 0755, 0},
    {"etc/pam.d", 0755, 0},
    {"etc/skel", 0755, 0},
    {"home/daytona", 0755, DAYTONA_ID},
    /* Where LangChain's deepagents keeps what is too long for its model, as any user. */
    {"large_tool_results", 01777, 0},
    {"conversation_history", 01777, 0},
};

/* Names in /etc/hosts and /etc/hostname are each sandbox's own, set at its start. cay-egress
 * answers as the name server; without it a lookup fails at once. */
static const struct {
    const char *path;
    mode_t mode;
    const char *text;
} texts[] = {
    {"etc/hostname", 0644, "cay\n"},
    {"etc/hosts", 0644, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
    {"etc/resolv.conf", 0644, "nameserver " EGRESS_RESOLVER "\noptions timeout:2 attempts:2\n"},
    {"etc/machine-id", 0444, ""},
    /* !fqdn: Debian's sudo looks up the host's full name on each call otherwise. */
    {"etc/sudoers", 0440,
     "Defaults env_reset\n"
     "Defaults !fqdn\n"
     "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
     "Defaults env_keep += \"HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy\"\n"
     "root ALL=(ALL:ALL) ALL\n"
     "user ALL=(ALL:ALL) NOPASSWD:ALL\n"
     "daytona ALL=(ALL:ALL) NOPASSWD:ALL\n"},
    /* sudoers alone decides who may; there is no password to ask for. */
    {"etc/pam.d/sudo", 0644,
     "auth sufficient pam_permit.so\n"
     "account sufficient pam_permit.so\n"
     "session sufficient pam_permit.so\n"},
    {"etc/pam.d/sudo-i", 0644,
     "auth sufficient pam_permit.so\n"
     "account sufficient pam_permit.so\n"
     "session sufficient pam_permit.so\n"},
};

static const char *const skel[] = {".bashrc", ".profile", ".bash_logout"};

static int put_dirs(void)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(dirs) && r == 0; i++) {
        r = tree_put_dir(dirs[i].path, dirs[i].mode, dirs[i].uid, dirs[i].uid);
        if (r < 0)
            say_failure(r, "cannot make %s: %s", dirs[i].path, strerror(-r));
    }
    return r;
}

static int put_texts(void)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
        r = tree_put_text(texts[i].path, texts[i].mode, texts[i].text);
        if (r < 0)
            say_failure(r, "cannot write %s: %s", texts[i].path, strerror(-r));
    }
    return r;
}

/* Not where there is one: root's may be the distribution's own. */
static int put_skel(const char *name, const char *home, uid_t owner)
{
    char from[64], to[64];
    struct stat st;
    int r;

    snprintf(from, sizeof(from), "etc/skel/%s", name);
    snprintf(to, sizeof(to), "%s/%s", home, name);
    if (stat(from, &st) < 0 || (owner == 0 && lstat(to, &st) == 0))
        return 0;
    r = tree_copy(from, to);
    return r == 0 && owner && lchown(to, owner, owner) < 0 ? -errno : r;
}

/* All homes get what the distribution gives to new users. */
static int put_homes(void)
{
    static const struct {
        const char *home;
        uid_t owner;
    } homes[] = {{"home/user", USER_ID}, {"home/daytona", DAYTONA_ID}, {"root", 0}};
    int r = 0;

    for (size_t h = 0; h < ARRAY_SIZE(homes); h++)
        for (size_t i = 0; i < ARRAY_SIZE(skel) && r == 0; i++)
            r = put_skel(skel[i], homes[h].home, homes[h].owner);
    return r < 0 ? say_failure(r, "cannot fill the homes: %s", strerror(-r)) : 0;
}

/* Needs no curl: bash and sed are in every Debian. cay-egress serves the page
 * (egress/flow/local_info_page.c). */
static const char denials[] =
    "#!/bin/bash\n"
    "# What the network refused here, newest last. --json: the same for programs.\n"
    "page=/denials.txt\n"
    "[ \"${1-}\" = --json ] && page=/denials\n"
    "{ exec 3<>/dev/tcp/cay.internal/80; } 2>/dev/null || {\n"
    "    echo 'cay-denials: there is no way out here that could refuse anything' >&2\n"
    "    exit 1\n"
    "}\n"
    "printf 'GET %s HTTP/1.0\\r\\nHost: cay.internal\\r\\n\\r\\n' \"$page\" >&3\n"
    "sed '1,/^\\r$/d' <&3\n";

int account_put_denials(const char *dir)
{
    char path[128];
    int r = tree_put_dir(dir, 0755, 0, 0);

    snprintf(path, sizeof(path), "%s/cay-denials", dir);
    return r < 0 ? r : tree_put_text(path, 0755, denials);
}

int account_put(void)
{
    int r = put_dirs();

    if (r == 0)
        r = put_texts();
    return r == 0 ? put_homes() : r;
}
