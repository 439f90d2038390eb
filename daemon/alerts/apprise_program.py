"""A message to apprise: a script, which `apprise_post.py` runs in a process of its own.

Standard input has a JSON object: `url` of apprise, `hosts` that may be spoken to, the `title`, `body` and `notify_type`
of the message, and perhaps a `picture`, a PNG in Base64. Standard output gets another: `said` is one of the words
below, `host` what was refused. Nothing that apprise logs is let out, since it may quote the address.
"""

import base64
import ipaddress
import json
import sys
from collections.abc import Collection
from typing import Any

TAKEN, NOT_TAKEN, UNKNOWN, FORBIDDEN = "taken", "not taken", "unknown address", "forbidden"

_STARTS_PROCESSES = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork")


class Guard:
    """An audit hook: names are resolved and sent to, and connections made, only where `hosts` allows.

    An address is taken for that of an allowed name once one was resolved. No process is started, and no socket of
    this machine is spoken to.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(hosts)
        self._resolved = False
        self.refused = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See sys.addaudithook."""
        if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
            self._check(arguments[0])
            self._resolved = True
        elif event in {"socket.connect", "socket.sendto"}:
            address = arguments[1]
            host = address[0] if isinstance(address, tuple) else "a local socket"
            if not (self._resolved and _is_address(host)):
                self._check(host)
        elif event.startswith(_STARTS_PROCESSES):
            self._check("a program of this machine")

    def _check(self, host: object) -> None:
        name = (host.decode(errors="replace") if isinstance(host, bytes) else str(host)).lower().rstrip(".")
        if name not in self._hosts:
            self.refused = self.refused or name
            raise PermissionError(f"{name} is not allowed")


def _is_address(host: object) -> bool:
    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return True


def main() -> None:
    """Send what standard input has."""
    import apprise  # noqa: PLC0415 (an extra, and never of the daemon)
    from apprise.attachment.memory import AttachMemory  # noqa: PLC0415

    order = json.load(sys.stdin)
    guard = Guard(order["hosts"])
    sys.addaudithook(guard)
    asset = apprise.AppriseAsset(app_id="cyclewatch", http_redirects=False)
    service = apprise.Apprise.instantiate(order["url"], asset=asset)
    said = UNKNOWN
    if service is not None:
        # Whatever the address says of it.
        service.verify_certificate = True
        service.redirects = False
        message = {name: order[name] for name in ("title", "body", "notify_type")}
        taken = False
        if "picture" in order and service.attachment_support:
            png = AttachMemory(base64.b64decode(order["picture"]), name="timeline.png", mimetype="image/png")  # type: ignore[no-untyped-call]
            taken = service.notify(**message, attach=apprise.AppriseAttachment(png))
        taken = taken or service.notify(**message)  # a picture must not keep a message from going out
        said = TAKEN if taken else FORBIDDEN if guard.refused else NOT_TAKEN
    json.dump({"said": said, "host": guard.refused}, sys.stdout)


if __name__ == "__main__":
    main()
