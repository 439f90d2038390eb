"""Which hosts are this one."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a name or an address, without brackets and port, is that of this host to itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
