"""Serving the daemon channel for as long as the daemon runs, as soon as there is a directory for it."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

import structlog

from cyclewatch.collectors.kineto.directory import EndpointError
from cyclewatch.collectors.kineto.endpoint import Endpoint
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.config.settings import Profiling

log = structlog.get_logger(__name__)

_RETRY_NS = 60 * 10**9


class Channel:
    """The endpoint, or why there is none."""

    def __init__(self, settings: Profiling, proc: Path) -> None:
        self._settings = settings
        self._proc = proc
        self._tried_ns: int | None = None
        self._refused: dict[str, int] = {}
        self._refused_before = 0
        self.endpoint: Endpoint | None = None
        self.obstacle = "" if settings.enabled else "switched off by profiling.enabled"

    def serve(self, now_ns: int) -> None:
        """Serve, if that is wanted and possible and not done yet; tries again every minute. Tells what was refused."""
        if self.endpoint is not None and not self.endpoint.is_reachable():
            self._give_up(self.endpoint)
        if self.endpoint is None and self._settings.enabled:
            if self._tried_ns is None or now_ns - self._tried_ns >= _RETRY_NS:
                self._tried_ns = now_ns
                self._start()
        elif self.endpoint is not None:
            self._tell_refusals(self.endpoint)

    def _start(self) -> None:
        try:
            endpoint = Endpoint(self._settings.socket_dir, user_ids(self._settings.users), self._proc)
            endpoint.start()
        except EndpointError as error:
            if str(error) != self.obstacle:
                log.info("no kernel profiles by Kineto's channel", reason=str(error))
            self.obstacle = str(error)
            return
        self.endpoint, self.obstacle = endpoint, ""
        log.info("serving Kineto's channel", directory=str(self._settings.socket_dir))

    def _give_up(self, endpoint: Endpoint) -> None:
        """Serve no more where nobody can ask: the directory may have been a unit's, and gone with it."""
        self._tell_refusals(endpoint)
        self._refused_before += sum(self._refused.values())
        self._refused = {}
        self.endpoint = None
        self.obstacle = f"{endpoint.directory}: was removed, or the socket in it: it is looked for every minute"
        log.warning("Kineto's channel was taken away", directory=str(endpoint.directory))
        endpoint.close()

    def _tell_refusals(self, endpoint: Endpoint) -> None:
        for kind, refusals in endpoint.refusals().items():
            if kind not in self._refused:
                log.warning("no answer on Kineto's channel", kind=kind, reason=refusals.latest)
            self._refused[kind] = refusals.count

    def processes(self) -> tuple[KinetoProcess, ...]:
        """The processes that can be asked for a profile."""
        endpoint = self.endpoint  # other threads ask, too
        return endpoint.processes() if endpoint is not None else ()

    @property
    def refused(self) -> int:
        """How many datagrams got no answer."""
        return self._refused_before + sum(self._refused.values())

    def close(self) -> None:
        """Serve no more."""
        if self.endpoint is not None:
            self.endpoint.close()


def user_ids(names: Iterable[str]) -> frozenset[int]:
    """Root, the daemon's own user, and those named or numbered.

    Raises:
        EndpointError: there is no user of a name.
    """
    ids = {0, os.geteuid()}
    for name in names:
        try:
            ids.add(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise EndpointError(
                f"there is no user {name}, whom profiling.users names: correct it, or give a number"
            ) from None
    return frozenset(ids)
