"""A process of PyTorch as the daemon channel sees it: libkineto's client, written by the letter of its source."""

import json
import os
import socket
import struct
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

METADATA = struct.Struct("<Q32s")


class EndedError(Exception):
    """Libkineto would have thrown what nobody catches: the process has ended."""


def request(pids: tuple[int, ...], *, free: bool = True, job: int = 0) -> bytes:
    """A `req` datagram."""
    body = struct.pack(f"<iiq{len(pids)}i", 3 if free else 1, len(pids), job, *pids)
    return METADATA.pack(len(body), b"req") + body


def context(pid: int, gpu: int = 0, job: int = 0) -> bytes:
    """A `ctxt` datagram."""
    body = struct.pack("<iiq", gpu, pid, job)
    return METADATA.pack(len(body), b"ctxt") + body


class FakeProcess:
    """This process, asking in `directory`, which it spells as `spelled`."""

    def __init__(self, directory: Path, spelled: str = "", name: str = "dynoconfigclient") -> None:
        self.directory = directory
        self.spelled = spelled or str(directory)
        self.pid = os.getpid()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{self.spelled}/{name}{uuid.uuid4()}")
        self.socket.settimeout(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()  # its name stays, as libkineto leaves it

    def send(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, f"{self.spelled}/dynolog")

    def receive(self) -> bytes:
        """The body of an answer, read as libkineto's FabricManager does."""
        datagram, address = self.socket.recvfrom(1 << 16)
        if not str(address).startswith(f"{self.spelled}/"):
            raise EndedError(f"unexpected socket name {address}")
        size, _ = METADATA.unpack_from(datagram)
        return datagram[METADATA.size : METADATA.size + size]

    def poll(self, *, free: bool = True) -> str:
        """Ask once; gives the configuration."""
        self.send(request((self.pid, os.getppid()), free=free))
        return self.receive().decode()

    def hears_nothing(self) -> bool:
        """Whether no answer comes."""
        self.socket.settimeout(0.2)
        try:
            self.receive()
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(2)
        return False


def keys(configuration: str) -> dict[str, str]:
    """A configuration as libkineto parses it."""
    return dict(line.split("=", 1) for line in configuration.splitlines())


class Recording:
    """What libkineto's profiler thread does with a configuration."""

    def __init__(self, configuration: str, pid: int) -> None:
        self.path = Path(keys(configuration)["ACTIVITIES_LOG_FILE"].removesuffix(".json") + f"_{pid}.json")
        self.temporary = self.path.with_name(f"{self.path.name}.tmp")
        self.pid = pid

    def configure(self) -> None:
        """The profiler is on; the file is open."""
        self.temporary.touch()

    def finish(self, content: bytes | None = None) -> None:
        """All is written; the file gets its name."""
        self.temporary.write_bytes(trace(self.pid) if content is None else content)
        self.temporary.rename(self.path)


def trace(pid: int, operators: int = 40, began_ns: int | None = None) -> bytes:
    """A small trace of CPU operators, in Kineto's form; begun at `began_ns` (UTC), or now."""
    base_ns = (time.time_ns() if began_ns is None else began_ns) - 100_000
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": pid,
            "tid": pid,
            "ts": 100.0 + 20 * number,
            "dur": 10.5,
            "args": {"External id": number},
        }
        for number, name in enumerate(["aten::mm", "aten::softmax"] * (operators // 2))
    ]
    document = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": base_ns, "traceEvents": events}
    return json.dumps(document).encode()


class Torch:
    """A process that polls quickly and records what it is told; `content` is what it writes, None for a good trace."""

    def __init__(self, directory: Path) -> None:
        self.content: bytes | None = None
        self.writes = True
        self.free = True
        self.orders: list[str] = []
        self._process = FakeProcess(directory)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stopping.wait(0.02):
            try:
                order = self._process.poll(free=self.free)
            except (OSError, TimeoutError):
                continue  # nobody serves yet, or no more
            if order:
                self.orders.append(order)
                recording = Recording(order, os.getpid())
                if self.writes:
                    recording.configure()
                    recording.finish(self.content)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._process.close()
