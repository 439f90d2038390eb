"""The engine collector: what SGLang says of itself over HTTP."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery, Server
from cyclewatch.collectors.engine_metrics import PARSER, QUANTITIES, gauges, increases, restarted
from cyclewatch.collectors.fetch import Fetcher, FetchError, Response, UnreachableError, public_url
from cyclewatch.collectors.model_shape import find_config, read_model_shape
from cyclewatch.collectors.prometheus_text import ExpositionError, Page
from cyclewatch.collectors.records import Fact, Failure, NoData, Sample, ServerIdentity
from cyclewatch.collectors.server_info import parse_server_info
from cyclewatch.config.settings import Engine

IDENTITY_INTERVAL_NS = 600_000_000_000
IDENTITY_RETRY_NS = 60_000_000_000
INFO_PATHS = ("/server_info", "/get_server_info")
"""Where servers describe themselves: the present place, and the only one of 0.5.4."""

_OK = 200
_REDIRECTS = range(300, 400)
_REFUSED = {401, 403}
_NOT_FOUND = {404, 405}


@dataclass
class _State:
    """What is remembered of one server between two calls."""

    server: Server
    processes: frozenset[int]
    ask_ns: int | None = None
    page: Page | None = None
    page_ns: int = 0


class _AnswerError(Exception):
    """A server answered something that cannot be used; one sentence."""


class EngineCollector:
    """Asks every server for its identity and its metrics, and gives what it has even if some servers fail.

    A server that does not run is `NoData`; one that answers late, wrongly or without end is a `Failure`.

    The identity is asked for at the first contact, when the server was away, and when its processes or its counters
    began anew; these are the traces that a restart leaves. Besides, it is asked for every ten minutes, for what
    changes without a restart. Not more often, because the scheduler itself makes the answer, between two of its
    cycles: 4 ms of its time in 0.5.23, 0.5 ms in 0.5.4. `/metrics` takes none of it.
    """

    name = "engine"
    quantities = QUANTITIES

    def __init__(
        self,
        settings: Engine,
        discovery: Discovery,
        fetch: Fetcher,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.interval_s = settings.interval_s
        self._settings = settings
        self._discovery = discovery
        self._fetch = fetch
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._restarted: set[str] = set()

    def collect(self, now: Now) -> list[Sample]:
        """Identity and readings of every server."""
        servers = self._discovery.servers()
        schedulers = self._discovery.schedulers()
        known, self._states = self._states, {}
        samples: list[Sample] = []
        for server in servers:
            processes = frozenset(process.pid for process in schedulers if process.target == server.target)
            state = known.get(server.target)
            if state is None or state.server != server:
                state = _State(server, processes)
            elif state.processes != processes:
                state.processes, state.ask_ns = processes, None
            try:
                samples += self._ask(state, now.monotonic_ns)
                self._states[server.target] = state
            except UnreachableError as error:
                if server.target in known:
                    self._restarted.add(server.target)
                samples.append(NoData(str(error)))
        if not servers:
            samples.append(NoData("no server known yet: name one in [[targets]], or wait for its rings"))
        return samples

    def close(self) -> None:
        """Forget all servers; no connection is held between two calls."""
        self._states = {}
        self._restarted = set()

    def _ask(self, state: _State, now_ns: int) -> list[Sample]:
        samples: list[Sample] = []
        if state.ask_ns is None or now_ns >= state.ask_ns:
            answer = self._answer(state, self._identity)
            known = any(isinstance(sample, ServerIdentity) for sample in answer)
            # Nor is a server that hangs asked with every reading: it would queue the questions.
            state.ask_ns = now_ns + (IDENTITY_INTERVAL_NS if known else IDENTITY_RETRY_NS)
            samples += answer
        samples += self._answer(state, self._metrics)
        return samples

    @staticmethod
    def _answer(state: _State, question: Callable[[_State], list[Sample]]) -> list[Sample]:
        """The answer to one question; that there is no good one is a sample too, so that the next is asked."""
        try:
            return question(state)
        except UnreachableError:
            raise
        except (FetchError, _AnswerError) as error:
            return [Failure(public_url(state.server.url), str(error))]

    def _get(self, url: str) -> Response:
        """The answer to a question.

        Raises:
            FetchError: none.
            _AnswerError: a redirect, a web page, or the server's own failure.
        """
        response = self._fetch.get(url, timeout_s=self._settings.timeout_s, max_bytes=self._settings.max_bytes)
        shown = public_url(url)
        if response.status in _REDIRECTS:
            raise _AnswerError(f"{shown} redirects elsewhere, which is not followed: correct the target's url")
        if response.status != _OK and response.status not in _NOT_FOUND | _REFUSED:
            raise _AnswerError(f"{shown} answered with status {response.status}: the server's log tells why")
        return response

    def _identity(self, state: _State) -> list[Sample]:
        server, shown = state.server, public_url(state.server.url)
        for path in INFO_PATHS:
            response = self._get(server.url + path)
            if response.status in _REFUSED:
                return [NoData(f"{shown}{path} wants the server's API key: version and arguments stay unknown")]
            if response.status in _NOT_FOUND:
                continue
            try:
                identity = parse_server_info(server.target, server.url, response.body)
            except ValueError as error:
                raise _AnswerError(f"{shown}{path}: {error}: is this SGLang?") from None
            self._discovery.publishes(server.target, str(identity.arguments.get("forward_pass_metrics_ipc_name", "")))
            restarted = server.target in self._restarted
            self._restarted.discard(server.target)
            return [replace(identity, restarted=restarted), *self._model_shape(identity)]
        return [NoData(f"{shown} has none of {', '.join(INFO_PATHS)}: is this SGLang 0.5.4 or later?")]

    def _model_shape(self, identity: ServerIdentity) -> list[Sample]:
        """What the model is made of, if its `config.json` can be read here and describes a decoder."""
        revision = str(identity.arguments.get("revision", ""))
        try:
            path = find_config(identity.model, revision, self._settings.hub.expanduser())
            return [] if path is None else [Fact(identity.target, "model_shape", read_model_shape(path).text)]
        except (OSError, ValueError) as error:
            return [NoData(str(error))]

    def _metrics(self, state: _State) -> list[Sample]:
        url = state.server.url + "/metrics"
        shown = public_url(url)
        response = self._get(url)
        page_ns = self._clock()
        if response.status in _NOT_FOUND:
            return [NoData(f"{shown} does not exist: start SGLang with --enable-metrics")]
        if response.status in _REFUSED:
            return [NoData(f"{shown} asks for credentials: let this host read it without")]
        if response.content_type == "text/html" or response.body.lstrip()[:1] == b"<":
            raise _AnswerError(f"{shown} is a web page: --enable-metrics may be missing, or this is not SGLang")
        try:
            page = PARSER.parse(response.body)
        except ExpositionError as error:
            raise _AnswerError(f"{shown}: not in the Prometheus text format: {error}") from None
        before, before_ns, state.page, state.page_ns = state.page, state.page_ns, page, page_ns
        if not page:
            return [NoData(f"{shown} has none of the series of SGLang yet")]
        target = state.server.target
        samples: list[Sample] = list(gauges(target, page))
        if before is not None and restarted(before, page):
            state.ask_ns = None
            self._restarted.add(target)
        elif before is not None:
            samples += increases(target, before, page, (page_ns - before_ns) / 1e9)
        return samples
