"""Which start of which server samples belong to, and what changed between two starts."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cyclewatch.collectors.records import RingIdentity, ServerIdentity
from cyclewatch.daemon.store.unit import ChangeEvent, Run

_PLACE_ARGUMENTS = frozenset({"host", "port", "served_model_name", "forward_pass_metrics_ipc_name"})
"""Where a server listens and what it calls itself do not change its speed."""


def fingerprint(version: str, model: str, arguments: Mapping[str, Any]) -> str:
    """Short name of a configuration: two runs with the same one may share a baseline."""
    relevant = {key: value for key, value in arguments.items() if key not in _PLACE_ARGUMENTS}
    text = json.dumps([version, model, relevant], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RunRegistry:
    """Knows the latest run of every target."""

    def __init__(self, node: str, boot_id: str, known: Iterable[Run]) -> None:
        self._node = node
        self._boot_id = boot_id
        self._latest: dict[str, Run] = {}
        for run in sorted(known, key=lambda run: run.started_at_ns):
            self._latest[run.target] = run

    def of_ring(self, ring: RingIdentity, target: str) -> tuple[Run, list[ChangeEvent]]:
        """The run that a ring belongs to, and what changed if it is a new one.

        All ranks of a server have the same parent process, so they share the run.
        """
        namespace = ring.key.partition("-")[0]
        key = f"{self._node}|{target}|{self._boot_id}|{namespace}-{ring.parent_pid}-{ring.parent_start_ticks}"
        previous = self._latest.get(target)
        if previous is not None and previous.key == key:
            return previous, []
        model = str(ring.server.get("model_path") or "")
        run = Run(
            key=key,
            node=self._node,
            target=target,
            started_at_ns=ring.wall_ns,
            last_seen_ns=ring.wall_ns,
            fingerprint=fingerprint(ring.sglang_version, model, ring.server),
            version=ring.sglang_version,
            model=model,
            arguments=ring.server,
        )
        if previous is not None and previous.started_at_ns > run.started_at_ns:
            return run, []  # the ring of an earlier start that has not been cleared away
        self._latest[target] = run
        return run, list(changes_between(previous, run)) if previous else []

    def is_latest(self, run: Run) -> bool:
        """Whether no later start of the same target is known."""
        latest = self._latest.get(run.target)
        return latest is not None and latest.key == run.key

    def seen(self, run: Run, at_ns: int, environment: Mapping[str, str]) -> Run:
        """The same run, last seen at `at_ns`; the latest one has this environment, earlier ones keep theirs."""
        run = replace(run, last_seen_ns=max(at_ns, run.last_seen_ns))
        if self.is_latest(run):
            run = self._latest[run.target] = replace(run, environment=environment)
        return run

    def of_server(
        self, identity: ServerIdentity, at_ns: int, environment: Mapping[str, str]
    ) -> tuple[Run, list[ChangeEvent]]:
        """The run of a server that has no ring, known by what it says of itself alone, and what changed.

        A restart is seen if the collector noticed one; another version, model or argument is one in any case.
        """
        previous = self._latest.get(identity.target)
        run = Run(
            key=f"{self._node}|{identity.target}|http|{at_ns // 10**9}",
            node=self._node,
            target=identity.target,
            started_at_ns=at_ns,
            last_seen_ns=at_ns,
            fingerprint=fingerprint(identity.version, identity.model, identity.arguments),
            version=identity.version,
            model=identity.model,
            arguments=identity.arguments,
            environment=environment,
        )
        if previous is not None and not identity.restarted and _same_server(previous, run):
            return self.seen(previous, at_ns, environment), []
        self._latest[identity.target] = run
        return run, list(changes_between(previous, run)) if previous else []


def _over_http(run: Run) -> bool:
    return "|http|" in run.key


def _same_server(before: Run, after: Run) -> bool:
    """Whether nothing changed, as far as the two can be compared."""
    if _over_http(before) != _over_http(after):
        return (before.version, before.model) == (after.version, after.model)
    return before.fingerprint == after.fingerprint


def changes_between(before: Run, after: Run) -> Iterable[ChangeEvent]:
    """What a start changed of its server: a restart, and what is different from the run before."""
    target, at_ns = after.target, after.started_at_ns
    yield ChangeEvent(target, at_ns, "restart", "server", "", "")
    if before.version != after.version:
        yield ChangeEvent(target, at_ns, "version", "sglang", before.version, after.version)
    if before.model != after.model:
        yield ChangeEvent(target, at_ns, "model", "model_path", before.model, after.model)
    if _over_http(before) != _over_http(after):
        return  # the ring has the arguments as they were given, the server's answer as SGLang completed them
    for name in sorted(set(before.arguments) | set(after.arguments)):
        old, new = before.arguments.get(name), after.arguments.get(name)
        if old != new and name not in {*_PLACE_ARGUMENTS, "model_path"}:
            yield ChangeEvent(target, at_ns, "argument", name, json.dumps(old), json.dumps(new))
