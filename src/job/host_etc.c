/* The /etc of the template `host`, and the directories beside it: tables of directories, links,
 * texts and files to be copied. host.c writes them into the new tree in this order. Nothing of
 * the host's identity is in them: users, groups and shadow are texts of this file, and only files
 * that all users may read there are copied. A row more is a file more in every sandbox of the
 * template. */

#include "job/host_etc.h"

#include "base/util.h"

const char *const host_etc_dirs[] = {
    "boot",
    "var/backups",
    "var/cache",
    "var/cache/apt",
    "var/cache/apt/archives",
    "var/cache/apt/archives/partial",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib",
    "var/lib/apt",
    "var/lib/apt/lists",
    "var/lib/apt/lists/partial",
    "var/lib/apt/periodic",
    "var/lib/dpkg",
    "var/lib/dpkg/alternatives",
    "var/lib/dpkg/info",
    "var/lib/dpkg/parts",
    "var/lib/dpkg/triggers",
    "var/lib/dpkg/updates",
    "var/lib/misc",
    "var/lib/pam",
    "var/lib/python",
    "var/local",
    "var/log",
    "var/log/apt",
    "var/mail",
    "var/opt",
    "var/spool",
    "etc/apt",
    "etc/apt/apt.conf.d",
    "etc/apt/auth.conf.d",
    "etc/apt/keyrings",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/default",
    "etc/opt",
    "etc/pam.d",
    "etc/profile.d",
    "etc/security",
    "etc/security/limits.d",
    "etc/ssl",
};

const struct host_etc_text host_etc_links[] = {
    {"etc/mtab", 0, "../proc/self/mounts"},
    {"etc/os-release", 0, "../usr/lib/os-release"},
    {"etc/localtime", 0, "/usr/share/zoneinfo/Etc/UTC"},
    {"var/run", 0, "/run"},
    {"var/lock", 0, "/run/lock"},
    {"var/spool/mail", 0, "../mail"},
};

#define NOLOGIN ":/usr/sbin/nologin\n"

const struct host_etc_text host_etc_texts[] = {
    {"etc/passwd", 0644,
     "root:x:0:0:root:/root:/bin/bash\n"
     "daemon:x:1:1:daemon:/usr/sbin" NOLOGIN "bin:x:2:2:bin:/bin" NOLOGIN
     "sys:x:3:3:sys:/dev" NOLOGIN "sync:x:4:65534:sync:/bin:/bin/sync\n"
     "games:x:5:60:games:/usr/games" NOLOGIN "man:x:6:12:man:/var/cache/man" NOLOGIN
     "lp:x:7:7:lp:/var/spool/lpd" NOLOGIN "mail:x:8:8:mail:/var/mail" NOLOGIN
     "news:x:9:9:news:/var/spool/news" NOLOGIN "uucp:x:10:10:uucp:/var/spool/uucp" NOLOGIN
     "proxy:x:13:13:proxy:/bin" NOLOGIN "www-data:x:33:33:www-data:/var/www" NOLOGIN
     "backup:x:34:34:backup:/var/backups" NOLOGIN
     "list:x:38:38:Mailing List Manager:/var/list" NOLOGIN "irc:x:39:39:ircd:/run/ircd" NOLOGIN
     "_apt:x:42:65534::/nonexistent" NOLOGIN "user:x:1000:1000:user:/home/user:/bin/bash\n"
     "daytona:x:1001:1001:daytona:/home/daytona:/bin/bash\n"
     "nobody:x:65534:65534:nobody:/nonexistent" NOLOGIN},
    {"etc/group", 0644,
     "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nlp:x:7:\n"
     "mail:x:8:\nnews:x:9:\nuucp:x:10:\nman:x:12:\nproxy:x:13:\nkmem:x:15:\ndialout:x:20:\n"
     "fax:x:21:\nvoice:x:22:\ncdrom:x:24:\nfloppy:x:25:\ntape:x:26:\nsudo:x:27:user,daytona\n"
     "audio:x:29:\ndip:x:30:\nwww-data:x:33:\nbackup:x:34:\noperator:x:37:\nlist:x:38:\n"
     "irc:x:39:\nsrc:x:40:\nshadow:x:42:\nutmp:x:43:\nvideo:x:44:\nsasl:x:45:\n"
     "plugdev:x:46:\nstaff:x:50:\ngames:x:60:\nusers:x:100:\nuser:x:1000:\ndaytona:x:1001:"
     "\nnogroup:x:65534:\n"},
    /* '*': no password fits. */
    {"etc/shadow", 0640,
     "root:*:19700:0:99999:7:::\ndaemon:*:19700:0:99999:7:::\nbin:*:19700:0:99999:7:::\n"
     "sys:*:19700:0:99999:7:::\nsync:*:19700:0:99999:7:::\ngames:*:19700:0:99999:7:::\n"
     "man:*:19700:0:99999:7:::\nlp:*:19700:0:99999:7:::\nmail:*:19700:0:99999:7:::\n"
     "news:*:19700:0:99999:7:::\nuucp:*:19700:0:99999:7:::\nproxy:*:19700:0:99999:7:::\n"
     "www-data:*:19700:0:99999:7:::\nbackup:*:19700:0:99999:7:::\nlist:*:19700:0:99999:7:::\n"
     "irc:*:19700:0:99999:7:::\n_apt:*:19700:0:99999:7:::\nuser:*:19700:0:99999:7:::\n"
     "daytona:*:19700:0:99999:7:::\n"
     "nobody:*:19700:0:99999:7:::\n"},
    {"etc/subuid", 0644, ""},
    {"etc/subgid", 0644, ""},
    {"etc/fstab", 0644, ""},
    {"etc/motd", 0644, ""},
    {"etc/environment", 0644, ""},
    {"etc/timezone", 0644, "Etc/UTC\n"},
    {"etc/nsswitch.conf", 0644,
     "passwd: files\ngroup: files\nshadow: files\ngshadow: files\n\n"
     "hosts: files dns\nnetworks: files\n\n"
     "protocols: files\nservices: files\nethers: files\nrpc: files\n\nnetgroup: files\n"},
    {"etc/networks", 0644, "default 0.0.0.0\nloopback 127.0.0.0\nlink-local 169.254.0.0\n"},
    {"etc/profile", 0644,
     "# bash knows its user, and so need not start a program for it at each login\n"
     "if [ \"${EUID:-$(id -u)}\" -eq 0 ]; then\n"
     "  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
     "else\n"
     "  PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games\n"
     "fi\n"
     "export PATH\n"
     "if [ \"${PS1-}\" ] && [ \"${BASH-}\" ] && [ \"$BASH\" != /bin/sh ] && "
     "[ -f /etc/bash.bashrc ]; then\n"
     "  . /etc/bash.bashrc\n"
     "fi\n"
     "for i in /etc/profile.d/*.sh; do\n"
     "  [ -r \"$i\" ] && . \"$i\"\n"
     "done\n"
     "unset i\n"},
    {"etc/bash.bashrc", 0644,
     "[ -z \"${PS1-}\" ] && return\n"
     "shopt -s checkwinsize\n"
     "PS1='\\u@\\h:\\w\\$ '\n"
     "[ -r /usr/share/bash-completion/bash_completion ] && ! shopt -oq posix && "
     ". /usr/share/bash-completion/bash_completion\n"},
    {"etc/pam.d/common-auth", 0644,
     "auth [success=1 default=ignore] pam_unix.so nullok\n"
     "auth requisite pam_deny.so\nauth required pam_permit.so\n"},
    {"etc/pam.d/common-account", 0644,
     "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\n"
     "account requisite pam_deny.so\naccount required pam_permit.so\n"},
    {"etc/pam.d/common-password", 0644,
     "password [success=1 default=ignore] pam_unix.so obscure yescrypt\n"
     "password requisite pam_deny.so\npassword required pam_permit.so\n"},
    {"etc/pam.d/common-session", 0644, "session required pam_permit.so\n"},
    {"etc/pam.d/common-session-noninteractive", 0644, "session required pam_permit.so\n"},
    {"etc/pam.d/other", 0644,
     "@include common-auth\n@include common-account\n@include common-password\n"
     "@include common-session\n"},
    {"etc/pam.d/su", 0644,
     "auth sufficient pam_rootok.so\n@include common-auth\n@include common-account\n"
     "@include common-session\n"},
    {"etc/pam.d/su-l", 0644,
     "auth sufficient pam_rootok.so\n@include common-auth\n@include common-account\n"
     "@include common-session\n"},
    {"etc/pam.d/runuser", 0644, "auth sufficient pam_rootok.so\nsession required pam_permit.so\n"},
    {"etc/pam.d/runuser-l", 0644,
     "auth sufficient pam_rootok.so\nsession required pam_permit.so\n"},
    {"etc/pam.d/passwd", 0644, "@include common-password\n"},
    {"etc/pam.d/chpasswd", 0644, "@include common-password\n"},
    {"etc/pam.d/chsh", 0644,
     "auth sufficient pam_rootok.so\n@include common-auth\n@include common-account\n"
     "@include common-session\n"},
    {"etc/security/limits.conf", 0644, ""},
    {"etc/security/pam_env.conf", 0644, ""},
    /* apt drops to _apt for downloads, and asks for nothing that it cannot have here. */
    {"etc/apt/apt.conf.d/90cay", 0644,
     "APT::Install-Recommends \"false\";\nAPT::Sandbox::User \"root\";\n"
     "Acquire::Languages \"none\";\n"},
    /* The machine's names owners that are not here, and dpkg refuses to work with such a one. */
    {"var/lib/dpkg/statoverride", 0644, ""},
};

const char *const host_etc_copies[] = {
    "etc/skel",
    "etc/alternatives",
    "etc/shells",
    "etc/login.defs",
    "etc/inputrc",
    "etc/terminfo",
    "etc/bash_completion",
    "etc/bash_completion.d",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/libaudit.conf",
    "etc/ssl/certs",
    "etc/ssl/openssl.cnf",
    "etc/ca-certificates.conf",
    "etc/ca-certificates",
    "etc/python3",
    "etc/python3.11",
    "etc/python3.12",
    "etc/python3.13",
    "etc/perl",
    "etc/mime.types",
    "etc/services",
    "etc/protocols",
    "etc/rpc",
    "etc/ethertypes",
    "etc/host.conf",
    "etc/gai.conf",
    "etc/iproute2",
    "etc/debian_version",
    "etc/issue",
    "etc/magic",
    "etc/magic.mime",
    "etc/fonts",
    "etc/vim",
    "etc/groff",
    "etc/manpath.config",
    "etc/nanorc",
    "etc/wgetrc",
    "etc/mke2fs.conf",
    "etc/xattr.conf",
    "etc/debconf.conf",
    "etc/adduser.conf",
    "etc/deluser.conf",
    "etc/dpkg",
    "etc/ucf.conf",
    "etc/java-17-openjdk",
    "etc/apt/trusted.gpg.d",
    "etc/apt/keyrings",
    /* The package data base, so that packages can be installed on top: no secret is in it. */
    "var/lib/dpkg/status",
    "var/lib/dpkg/available",
    "var/lib/dpkg/arch",
    "var/lib/dpkg/arch-native",
    "var/lib/dpkg/diversions",
    "var/lib/dpkg/alternatives",
    "var/lib/dpkg/info",
    "var/lib/dpkg/triggers",
    "var/lib/apt/extended_states",
    "var/lib/ucf",
};

const size_t host_etc_n_dirs = ARRAY_SIZE(host_etc_dirs);
const size_t host_etc_n_links = ARRAY_SIZE(host_etc_links);
const size_t host_etc_n_texts = ARRAY_SIZE(host_etc_texts);
const size_t host_etc_n_copies = ARRAY_SIZE(host_etc_copies);
