/* Loaded in front of libc (LD_PRELOAD): who would listen on all interfaces listens on one.
 *
 * TensorFlow's servers listen on 0.0.0.0 whatever TF_CONFIG says, and so do horovodrun and Open MPI. Nothing but
 * `bind` of a stream is changed: a run connects to others as before (docs/security.md).
 *
 *   RINGSIDE_LISTEN_ON   an interface; unset: nothing is changed
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef int (*Bind)(int, const struct sockaddr *, socklen_t);

/* Whether an address means all interfaces. */
static int is_any(const struct sockaddr *address, socklen_t length) {
    if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
    if (length >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return 0;
}

/* Put the first address of an interface in the place of `any`; returns 0, or -1: it has none of that family. */
static int put_address(const char *interface, int family, struct sockaddr_in6 *any) {
    struct ifaddrs *all, *one;
    int missing = -1;
    if (getifaddrs(&all)) return -1;
    for (one = all; one && missing; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != family || strcmp(one->ifa_name, interface)) continue;
        missing = 0;
        if (family == AF_INET6) {
            any->sin6_addr = ((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr;
            any->sin6_scope_id = ((struct sockaddr_in6 *)one->ifa_addr)->sin6_scope_id;
        } else if (any->sin6_family == AF_INET) {
            ((struct sockaddr_in *)any)->sin_addr = ((struct sockaddr_in *)one->ifa_addr)->sin_addr;
        } else { /* ::ffff:a.b.c.d */
            memset(&any->sin6_addr, 0, 10);
            memset((char *)&any->sin6_addr + 10, 0xff, 2);
            memcpy((char *)&any->sin6_addr + 12, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, 4);
        }
    }
    freeifaddrs(all);
    return missing;
}

int bind(int handle, const struct sockaddr *address, socklen_t length) {
    Bind libc_bind = (Bind)dlsym(RTLD_NEXT, "bind");
    const char *interface = getenv("RINGSIDE_LISTEN_ON");
    struct sockaddr_in6 own;
    int only_six = 0, type = 0;
    socklen_t size = sizeof only_six;
    getsockopt(handle, SOL_SOCKET, SO_TYPE, &type, &size);
    if (!interface || !address || type != SOCK_STREAM || length > sizeof own || !is_any(address, length))
        return libc_bind(handle, address, length);
    memcpy(&own, address, length);
    /* A socket of both families listens on the IPv4 address: that is where others connect to. */
    if (address->sa_family == AF_INET6) {
        size = sizeof only_six;
        getsockopt(handle, IPPROTO_IPV6, IPV6_V6ONLY, &only_six, &size);
    }
    if (put_address(interface, only_six ? AF_INET6 : AF_INET, &own)) {
        errno = EADDRNOTAVAIL; /* rather nowhere than everywhere */
        return -1;
    }
    return libc_bind(handle, (struct sockaddr *)&own, length);
}
