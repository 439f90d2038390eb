"""The discovery collector: SGLang servers among the processes of this node, also those without a ring."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import DEFAULT_PORT, Discovery
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NoData, Sample
from cyclewatch.config.settings import Discovery as DiscoverySettings

_COMMAND_BYTES = 64 * 1024
_PORT_MAX = 65_535


class LocalServersCollector:
    """Tells `Discovery` where SGLang listens; gives no samples of its own.

    Only the command line of processes is looked at, and of it only host and port are kept.
    """

    name = "discovery"
    quantities: tuple[Quantity, ...] = ()

    def __init__(self, settings: DiscoverySettings, discovery: Discovery, proc: Path) -> None:
        self.interval_s = settings.interval_s
        self._discovery = discovery
        self._proc = proc

    def collect(self, now: Now) -> list[Sample]:
        """Look through all processes; `NoData` where none is SGLang's."""
        del now
        addresses = sorted(set(self._addresses()))
        self._discovery.listening(addresses)
        return [] if addresses else [NoData(f"no SGLang server among the processes under {self._proc}")]

    def close(self) -> None:
        """Nothing is held."""

    def _addresses(self) -> Iterator[tuple[str, int]]:
        with contextlib.suppress(OSError):
            for entry in self._proc.iterdir():
                if not entry.name.isdigit():
                    continue
                # A process may end, or be somebody else's, between two looks.
                with contextlib.suppress(OSError), (entry / "cmdline").open("rb") as file:
                    words = file.read(_COMMAND_BYTES).decode(errors="replace").split("\0")
                    if (address := server_address(words)) is not None:
                        yield address


def server_address(words: Sequence[str]) -> tuple[str, int] | None:
    """Host and port of the SGLang server that a command line starts; None for any other command line.

    Both `python -m sglang.launch_server …` and `sglang serve …` are known. Without `--host` SGLang listens on
    127.0.0.1, without `--port` on 30000.
    """
    if not _starts_server(words):
        return None
    port_text = _option(words, "--port") or str(DEFAULT_PORT)
    if not port_text.isdecimal() or not 0 < int(port_text) <= _PORT_MAX:
        return None
    return _option(words, "--host") or "127.0.0.1", int(port_text)


def _starts_server(words: Sequence[str]) -> bool:
    if "sglang.launch_server" in words:
        return True
    return any(Path(word).name == "sglang" for word in words[:2]) and "serve" in words[1:3]


def _option(words: Sequence[str], name: str) -> str:
    """Value of an option, the last one given; an empty text where there is none."""
    value = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value
