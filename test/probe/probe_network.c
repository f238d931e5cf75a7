/* Socket families and addresses (classes 7, 9, 11, 12 as far as no egress program is there). Every
 * attempt is one packet at most, and inside a sandbox none leaves: that is what is tested. On the
 * host these cases are not run (no positive control there). */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define PATIENCE_MS 700

static void family(struct finding *f, int domain, int type, int protocol, const char *name)
{
    found_call(f, name, socket(domain, type, protocol));
}

static void packet(struct finding *f)
{
    family(f, AF_PACKET, SOCK_RAW, 0, "socket(AF_PACKET)");
}

static void vsock(struct finding *f)
{
    family(f, AF_VSOCK, SOCK_STREAM, 0, "socket(AF_VSOCK)");
}

static void netfilter(struct finding *f)
{
    family(f, AF_NETLINK, SOCK_RAW, 12, "socket(NETLINK_NETFILTER)");
}

static void audit(struct finding *f)
{
    family(f, AF_NETLINK, SOCK_RAW, 9, "socket(NETLINK_AUDIT)");
}

static void uevent(struct finding *f)
{
    family(f, AF_NETLINK, SOCK_RAW, 15, "socket(NETLINK_KOBJECT_UEVENT)");
}

static void raw_icmp(struct finding *f)
{
    family(f, AF_INET, SOCK_RAW, IPPROTO_ICMP, "socket(SOCK_RAW, ICMP)");
}

static void raw_ip6(struct finding *f)
{
    family(f, AF_INET6, SOCK_RAW, IPPROTO_RAW, "socket(AF_INET6, SOCK_RAW)");
}

static void sctp(struct finding *f)
{
    family(f, AF_INET, SOCK_STREAM, 132, "socket(SCTP)");
}

static void alg(struct finding *f)
{
    family(f, 38 /* AF_ALG */, SOCK_SEQPACKET, 0, "socket(AF_ALG)");
}

static void bluetooth(struct finding *f)
{
    family(f, 31, SOCK_RAW, 1, "socket(AF_BLUETOOTH)");
}

static void xdp(struct finding *f)
{
    family(f, 44, SOCK_RAW, 0, "socket(AF_XDP)");
}

/* No case may send a packet out of a real machine: only where `lo` is all there is. */
static int only_loopback(void)
{
    struct if_nameindex *list = if_nameindex();
    int others = 0;

    for (struct if_nameindex *i = list; i && i->if_index; i++)
        others += strcmp(i->if_name, "lo") != 0;
    return list && others == 0;
}

/* Refused at once is what is wanted: a hang would be a dropped packet, and the agent would wait. */
static void dial(struct finding *f, const char *address, int port, int type)
{
    struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int v6 = inet_pton(AF_INET6, address, &sin6.sin6_addr) == 1;
    int fd = socket(v6 ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK, 0);
    struct pollfd p = {.fd = fd, .events = type == SOCK_STREAM ? POLLOUT : POLLIN};
    int err = 0, r;
    socklen_t len = sizeof(err);

    if (!only_loopback()) {
        found_none(f, "there is an interface that leads out: nothing is sent");
        close(fd);
        return;
    }
    inet_pton(AF_INET, address, &sin.sin_addr);
    r = v6 ? connect(fd, (struct sockaddr *)&sin6, sizeof(sin6))
           : connect(fd, (struct sockaddr *)&sin, sizeof(sin));
    if (r < 0 && errno != EINPROGRESS) {
        found_refused(f, "%s:%d: %s", address, port, strerror(errno));
        return;
    }
    if (type == SOCK_DGRAM && send(fd, "x", 1, 0) < 0) {
        found_refused(f, "%s:%d: %s", address, port, strerror(errno));
        return;
    }
    if (poll(&p, 1, PATIENCE_MS) == 0) {
        found_open(f, "%s:%d: no answer in %d ms: dropped or sent, not refused", address, port,
                   PATIENCE_MS);
        return;
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err)
        found_refused(f, "%s:%d: %s", address, port, strerror(err));
    else
        found_open(f, "%s:%d: connected", address, port);
}

#define DIAL_CASE(fn, address, port, type) \
    static void fn(struct finding *f)      \
    {                                      \
        dial(f, address, port, type);      \
    }

DIAL_CASE(tcp_public, "1.1.1.1", 443, SOCK_STREAM)
DIAL_CASE(tcp_metadata, "169.254.169.254", 80, SOCK_STREAM)
DIAL_CASE(tcp_private, "10.0.0.1", 22, SOCK_STREAM)
DIAL_CASE(tcp6_public, "2606:4700:4700::1111", 443, SOCK_STREAM)
DIAL_CASE(tcp6_metadata, "fd00:ec2::254", 80, SOCK_STREAM)
DIAL_CASE(tcp_mapped, "::ffff:1.1.1.1", 443, SOCK_STREAM)
DIAL_CASE(udp_dns, "8.8.8.8", 53, SOCK_DGRAM)
DIAL_CASE(udp_quic, "1.1.1.1", 443, SOCK_DGRAM)
DIAL_CASE(udp6, "2606:4700:4700::1111", 53, SOCK_DGRAM)
DIAL_CASE(host_api, "127.0.0.1", 3000, SOCK_STREAM)

static void interfaces(struct finding *f)
{
    struct if_nameindex *list = if_nameindex();

    for (struct if_nameindex *i = list; i && i->if_index; i++) {
        if (strcmp(i->if_name, "lo") != 0) {
            found_open(f, "there is an interface %s", i->if_name);
            return;
        }
    }
    found_refused(f, "only lo");
}

static void abstract_sockets(struct finding *f)
{
    static const char *const names[] = {"/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0",
                                        "/containerd-shim", "/run/cay/privd.sock"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        memcpy(sun.sun_path + 1, names[i], strlen(names[i]));
        if (connect(fd, (struct sockaddr *)&sun,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(names[i]))) ==
            0) {
            found_open(f, "connected to @%s", names[i]);
            return;
        }
        close(fd);
    }
    found_refused(f, "no abstract socket of the host answers");
}

static void host_sockets(struct finding *f)
{
    static const char *const paths[] = {
        "/var/run/docker.sock", "/run/docker.sock",     "/run/containerd/containerd.sock",
        "/run/cay/privd.sock",  "/run/systemd/private", "/run/dbus/system_bus_socket"};
    struct stat st;

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        if (stat(paths[i], &st) == 0) {
            found_open(f, "%s is visible", paths[i]);
            return;
        }
    }
    found_refused(f, "no socket of the host is visible");
}

const struct probe_case probe_network_cases[] = {
    {"net.packet", "frames by AF_PACKET", packet, 1},
    {"net.vsock", "AF_VSOCK knows no network namespace", vsock, 0},
    {"net.netfilter", "change the rules", netfilter, 1},
    {"net.audit", "the audit socket", audit, 1},
    {"net.uevent", "device events of the host", uevent, 1},
    {"net.raw_icmp", "raw ICMP", raw_icmp, 1},
    {"net.raw_ip6", "raw IPv6", raw_ip6, 1},
    {"net.sctp", "another transport", sctp, 1},
    {"net.alg", "the kernel's crypto sockets", alg, 1},
    {"net.bluetooth", "bluetooth", bluetooth, 1},
    {"net.xdp", "AF_XDP", xdp, 0},
    {"net.interfaces", "an interface that leads out", interfaces, 1},
    {"net.tcp_public", "TCP to the internet", tcp_public, 0},
    {"net.tcp_metadata", "TCP to the cloud's metadata", tcp_metadata, 0},
    {"net.tcp_private", "TCP to a private network", tcp_private, 0},
    {"net.tcp6_public", "TCP to the internet by IPv6", tcp6_public, 0},
    {"net.tcp6_metadata", "TCP to the metadata by IPv6", tcp6_metadata, 0},
    {"net.tcp_mapped", "TCP by a v4-mapped address", tcp_mapped, 0},
    {"net.udp_dns", "a question to a resolver", udp_dns, 0},
    {"net.udp_quic", "QUIC", udp_quic, 0},
    {"net.udp6", "UDP by IPv6", udp6, 0},
    {"net.host_api", "the host's own API on loopback", host_api, 0},
    {"ipc.abstract", "abstract sockets of the host (CVE-2020-15257)", abstract_sockets, 1},
    {"ipc.host_sockets", "sockets of the host's daemons", host_sockets, 1},
    {0},
};
