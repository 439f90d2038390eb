"""Running the programs of the probe: each in a process of its own, which ends in time, and has only what it needs."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from cyclewatch.collectors.probe.quantities import CPU_LOOP, GPU_COPY, GPU_MATMUL, MEMORY_SCAN
from cyclewatch.collectors.records import NODE, Reading

_CPU_TIMEOUT_S = 10.0
_GPU_TIMEOUT_S = 90.0
_KILL_S = 5.0
_LOOK_S = 0.1
_TEXT_MAX = 200
_PIPE_BYTES = 2**16

_GPU_NAMES = {"matmul": GPU_MATMUL, "copy": GPU_COPY}
_CPU_NAMES = {"cpu_loop": CPU_LOOP, "memory_scan": MEMORY_SCAN}


class ProbeError(Exception):
    """A program gave no times; one sentence."""


class StuckError(ProbeError):
    """A program does not end even when it is killed: no other one should be started."""


def probe_cpu(stopping: threading.Event) -> tuple[Reading, ...]:
    """The fixed work of the CPU; takes some 50 ms. `stopping` ends it early.

    It has the priority of the daemon, not a lower one: at a lower one it would wait for everybody, and tell how busy
    the neighbours are, where a serving thread would not wait.

    Raises:
        ProbeError: there are no times.
    """
    answer = _answer([sys.executable, "-I", "-S", _program("cpu")], os.environ, _CPU_TIMEOUT_S, stopping)
    software = _software(answer)
    return tuple(
        Reading(NODE, name, _seconds(_part(answer, work), kind, _CPU_TIMEOUT_S), (("kind", kind), software))
        for work, name in _CPU_NAMES.items()
        for kind in ("cpu", "wall")
    )


def probe_gpus(python: str, gpus: Sequence[str], stopping: threading.Event) -> tuple[Reading, ...]:
    """The fixed work on these GPUs, by their numbers as NVML counts them; takes some seconds, mostly to load torch.

    Raises:
        ProbeError: there are no times.
    """
    devices = {gpu: f"cuda:{place}" for place, gpu in enumerate(gpus)}
    # Only these are seen: on no other one does a context take memory.
    environment = {
        **_without_ours(os.environ),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
    }
    answer = _answer([python, "-I", _program("gpu"), *devices.values()], environment, _GPU_TIMEOUT_S, stopping)
    return _of_devices(answer, devices)


def torch_of(python: str) -> tuple[str, int]:
    """What `python` would probe GPUs with, for example `torch 2.11.0+cu130`, and how many GPUs that sees.

    Raises:
        ProbeError: it has no torch, or cannot be run.
    """
    answer = _answer([python, "-I", _program("gpu")], _without_ours(os.environ), _GPU_TIMEOUT_S, threading.Event())
    gpus = answer.get("gpus")
    return _software(answer)[1], gpus if isinstance(gpus, int) else 0


def _of_devices(answer: Mapping[str, Any], devices: Mapping[str, str]) -> tuple[Reading, ...]:
    software, found = _software(answer), _part(answer, "devices")
    return tuple(
        Reading(NODE, name, _seconds(_part(found, device), work, _GPU_TIMEOUT_S), (("gpu", gpu), software))
        for gpu, device in devices.items()
        for work, name in _GPU_NAMES.items()
    )


def _program(name: str) -> str:
    return str(Path(__file__).with_name(f"{name}_program.py"))


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """The daemon's settings, which may hold the address of a database, are nobody else's."""
    return {name: value for name, value in environment.items() if not name.startswith("CYCLEWATCH_")}


def _answer(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float, stopping: threading.Event
) -> Mapping[str, Any]:
    """The JSON object that a command prints.

    Raises:
        ProbeError: it prints none, or not in time.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (our own programs, and a Python that the configuration names)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # so that all of it can be ended, should it be a script that starts others
        )
    except (OSError, ValueError) as error:
        raise ProbeError(f"{command[0]} cannot be run: {error}") from None
    assert process.stdout is not None  # both are pipes
    assert process.stderr is not None
    with process.stdout as output, process.stderr as errors:
        if why := _obstacle(process, timeout_s, stopping):
            _end(process, command[0])
            raise ProbeError(f"the probe by {command[0]} was ended: {why}")
        if process.returncode:
            raise ProbeError(f"the probe by {command[0]} ended with {process.returncode}: {_last_line(_read(errors))}")
        try:
            answer = json.loads(_read(output))
        except (ValueError, RecursionError):
            answer = None
    if not isinstance(answer, dict):
        raise ProbeError(f"the probe by {command[0]} did not answer in JSON: is it a Python?")
    return answer


def _obstacle(process: subprocess.Popen[bytes], timeout_s: float, stopping: threading.Event) -> str:
    """Wait until the process has ended; empty where it does, else why it should not go on.

    Nothing is read meanwhile: what it prints fits into a pipe, and one that prints without end waits there.
    """
    until_s = time.monotonic() + timeout_s
    while not stopping.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return ""
        if time.monotonic() > until_s:
            return f"it took more than {timeout_s:.0f} s"
    return "the daemon is stopping"


def _read(pipe: IO[bytes]) -> bytes:
    """What is in a pipe, whoever may still hold its other end."""
    os.set_blocking(pipe.fileno(), False)
    try:
        return os.read(pipe.fileno(), _PIPE_BYTES)
    except BlockingIOError:
        return b""


def _end(process: subprocess.Popen[bytes], name: str) -> None:
    """Kill the process, and what it has started.

    Raises:
        StuckError: it is still there.
    """
    os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_KILL_S)
    except subprocess.TimeoutExpired:
        raise StuckError(
            f"the probe by {name} (process {process.pid}) does not end even when killed: see the kernel's log"
        ) from None


def _last_line(errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    text = "".join(one for one in (lines[-1] if lines else "") if one.isprintable())
    return text[:_TEXT_MAX] or "it did not say why"


def _software(answer: Mapping[str, Any]) -> tuple[str, str]:
    text = answer.get("software")
    if not isinstance(text, str) or not text.isprintable() or len(text) > _TEXT_MAX:
        raise ProbeError("the probe did not say what it ran with")
    return "software", text


def _part(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = answer.get(name)
    if not isinstance(part, dict):
        raise ProbeError(f"the probe said nothing of {name}")
    return part


def _seconds(times: Mapping[str, Any], name: str, most: float) -> float:
    value = times.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 < value <= most:
        raise ProbeError(f"the probe gave {str(value)[:40]} for {name}, which is no time")
    return float(value)
