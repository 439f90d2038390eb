"""The way out by apprise: in a process of its own, bounded in time, to the allowed hosts."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from importlib.util import find_spec

from cyclewatch.daemon.alerts import apprise_program as program
from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Request, Response
from cyclewatch.daemon.alerts.post import ForbiddenHostError, PostError
from cyclewatch.daemon.printable import printable

_HOST_MAX = 253


def is_installed() -> bool:
    """Whether the extra `apprise` is there; it is not loaded."""
    return find_spec("apprise") is not None


class ApprisePoster:
    """`Poster` for one address of apprise. It says no more than whether the service has taken the message.

    Apprise has its own HTTP client, which takes 45 MB and follows its own rules: hence the process, without the
    environment of the daemon, and the guard in it (`apprise_program.py`).

    Args:
        destination: its key is the address.
        allowed_hosts: the only hosts that may be spoken to, in lower case.
        timeout_s: time for all of it, half a second for the start of the process among it.
        ca_file: PEM file of the only authorities to be trusted; empty for those that come with apprise.
        now_ns: UTC in nanoseconds.
    """

    def __init__(
        self,
        destination: Destination,
        allowed_hosts: Collection[str],
        timeout_s: float,
        ca_file: str = "",
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._destination = destination
        self._allowed_hosts = sorted(allowed_hosts)
        self._timeout_s = timeout_s
        trusted = {"REQUESTS_CA_BUNDLE": ca_file, "SSL_CERT_FILE": ca_file} if ca_file else {}
        self._environment = {"HOME": "/nonexistent", "NO_PROXY": "*", **trusted}
        self._now_ns = now_ns

    def post(self, request: Request) -> Response:
        """See `Poster`. The answer is 200 and empty."""
        order = {**json.loads(request.body), "url": self._destination.key, "hosts": self._allowed_hosts}
        try:
            done = subprocess.run(  # noqa: S603 (our own script)
                [sys.executable, "-I", program.__file__],
                input=json.dumps(order).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd="/",
                timeout=self._timeout_s,
                check=False,
            )
            answer = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            raise self._error(f"not taken within {self._timeout_s:g} s (alerts.timeout_s)") from None
        except OSError as error:
            raise self._error(f"no process could be started: {error.strerror}") from None
        except ValueError:
            raise self._error(f"apprise failed by itself and ended with {done.returncode}") from None
        match answer["said"]:
            case program.TAKEN:
                return Response(200, {}, b"", self._now_ns())
            case program.FORBIDDEN:
                host = printable(self._destination.masked(answer["host"]), _HOST_MAX)
                raise ForbiddenHostError(f"{host}: messages may not go there: add it to alerts.allowed_hosts")
            case program.UNKNOWN:
                raise self._error("apprise does not know such an address: correct it, or see its list of services")
            case _:
                raise self._error("the service has not taken it: `apprise -vv ADDRESS` by hand says why")

    def _error(self, sentence: str) -> PostError:
        return PostError(f"{self._destination.shown}: {sentence}")
