"""The settings model: every key, its unit, its range and its default.

Values come from the TOML file, then from the environment (`CYCLEWATCH_<SECTION>__<KEY>`), which wins. A key
that does not exist is an error that names it: a misspelt setting must never pass for a default.
"""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, HttpUrl, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cyclewatch.config.alerts import Alerts
from cyclewatch.config.incidents import Incidents
from cyclewatch.config.section import Ratio, Seconds, Section
from cyclewatch.config.store import Store
from cyclewatch.config.web import Web


class Target(Section):
    """One SGLang server to watch. Without any, servers are found from their rings."""

    name: str = Field(min_length=1, max_length=64, description="Name in messages, metrics and the store.")
    url: HttpUrl = Field(description="Base address of the server, for example http://127.0.0.1:30000.")
    forward_pass_metrics: str = Field(
        default="",
        pattern="^(ipc://.+)?$",
        description="Where the server publishes forward-pass metrics, as its --forward-pass-metrics-ipc-name; "
        "empty for what the server says itself.",
    )


class Rings(Section):
    """Where the hook inside SGLang leaves its records."""

    enabled: bool = Field(default=True, description="Read cycle records from rings.")
    directory: Path = Field(
        default=Path("/run/cyclewatch/rings"),
        description="Directory of the rings, on tmpfs; the server's CYCLEWATCH_RING_DIR must name the same one.",
    )
    interval_s: Seconds = Field(default=2.0, description="Seconds between two readings of the rings.")


class ForwardPass(Section):
    """Cycles of servers without a ring, as SGLang publishes them with --enable-forward-pass-metrics."""

    enabled: bool = Field(default=True, description="Subscribe to forward-pass metrics where they are published.")
    interval_s: Seconds = Field(default=2.0, description="Seconds between two looks at what has come in.")


class Discovery(Section):
    """Finding SGLang servers that are neither configured nor known from a ring."""

    enabled: bool = Field(default=True, description="Look for SGLang servers among the processes of this node.")
    interval_s: Seconds = Field(default=30.0, description="Seconds between two looks.")


class Engine(Section):
    """What SGLang says of itself over HTTP."""

    enabled: bool = Field(default=True, description="Ask the server for its identity and metrics.")
    interval_s: Seconds = Field(default=10.0, description="Seconds between two readings of /metrics.")
    timeout_s: Seconds = Field(default=2.0, description="Seconds to wait for one answer.")
    max_bytes: int = Field(
        default=8 * 2**20, ge=1024, le=2**28, description="Longest answer read, in bytes; more is an error."
    )
    hub: Path = Field(
        default=Path("~/.cache/huggingface/hub"),
        description="Where the server's Hugging Face cache is seen here; the shape of a model is read from it.",
    )


class Host(Section):
    """What Linux says of the node and of the serving processes."""

    enabled: bool = Field(default=True, description="Read what the node and the serving processes do.")
    interval_s: Seconds = Field(default=5.0, description="Seconds between two readings.")
    look_interval_s: Seconds = Field(
        default=15.0,
        description="Seconds between two looks for processes, threads and devices, and readings of what is slow.",
    )
    survey_interval_s: Seconds = Field(
        default=30.0, description="Seconds between two looks at all processes of the node, and at what it runs on."
    )
    proc: Path = Field(default=Path("/proc"), description="Where the host's proc file system is mounted.")
    sys: Path = Field(default=Path("/sys"), description="Where the host's sys file system is mounted.")
    cgroup: Path = Field(default=Path("/sys/fs/cgroup"), description="Where control groups are mounted.")


class Gpu(Section):
    """What NVML says of the GPUs."""

    enabled: bool = Field(default=True, description="Read the GPUs through NVML; off, no call of it is ever made.")
    interval_s: Seconds = Field(default=2.0, description="Seconds between two readings of clocks, power and GPM.")
    slow_interval_s: Seconds = Field(
        default=10.0, description="Seconds between two readings of all else: memory, temperatures, errors, links."
    )


class SelfUsage(Section):
    """What the daemon itself uses, how far it is behind, and what it lost."""

    enabled: bool = Field(default=True, description="Measure the daemon itself.")
    interval_s: Seconds = Field(default=10.0, description="Seconds between two measurements.")


class Windows(Section):
    """How cycles are cut into windows."""

    length_s: Seconds = Field(default=5.0, description="Seconds of one window.")


class Detection(Section):
    """When a change counts as a regression."""

    reloads: ClassVar[bool] = True

    reference_s: Seconds = Field(default=600.0, description="Seconds of traffic that make the baseline.")
    warmup_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=30.0, description="Seconds after a server's start that are not judged."
    )
    min_effect: Ratio = Field(default=0.02, description="Smallest change reported, as a ratio of the cycle time.")
    min_tail_effect: Ratio = Field(
        default=0.1,
        description="Smallest change reported of the slowest cycles (99th percentile) against the others, as a ratio.",
    )
    min_deployment_effect: Ratio = Field(
        default=0.03,
        description="Smallest change reported of another version or other arguments against those before them, as a "
        "ratio; two starts of the same server differ a little.",
    )
    persistence_s: Seconds = Field(default=60.0, description="Seconds a change must last before it is reported.")
    false_alarms_per_hour: Annotated[float, Field(gt=0, le=10)] = Field(
        default=0.0003, description="False alarms allowed to one series: the noise of this hour taken for a change."
    )
    history_s: Seconds = Field(default=7200.0, description="Seconds of windows the confirmation looks back over.")
    min_cycles: int = Field(default=10, ge=1, le=100_000, description="Fewest cycles that make a window count.")


class Profiling(Section):
    """Kernel profiles of the servers, a fraction of a second now and then."""

    enabled: bool = Field(
        default=True,
        description="Take profiles; without socket_dir, or with one that is open to others, none are taken.",
    )
    socket_dir: Path = Field(
        default=Path("/run/cyclewatch/kineto"),
        description="Directory of Kineto's daemon channel and of its traces, on tmpfs, mode 2770; the server's "
        "KINETO_IPC_SOCKET_DIR and KINETO_ONDEMAND_TRACE_DIR must name it letter by letter.",
    )
    users: tuple[str, ...] = Field(
        default=(), description="Users that servers run as, by name or number, besides root and the daemon's own."
    )
    duration_ms: int = Field(default=300, ge=10, le=10_000, description="Milliseconds that one profile records.")
    interval_s: Seconds = Field(default=3600.0, description="Seconds between two profiles of a server in quiet times.")
    suspicion_interval_s: Seconds = Field(
        default=600.0, description="Seconds between two profiles of a server, whatever the reason."
    )
    max_queue: int = Field(
        default=8, ge=0, le=100_000, description="Longest queue of waiting requests with which a profile is begun."
    )
    max_stall_ms: Annotated[float, Field(gt=0, le=60_000)] = Field(
        default=100.0,
        description="Milliseconds that the longest cycle of a profile may exceed the longest before it; more switches "
        "profiling off.",
    )
    max_after_effect: Ratio = Field(
        default=0.05,
        description="How much longer, as a ratio, cycles may surely be after a profile than before it; more switches "
        "profiling off.",
    )
    max_duty: Ratio = Field(default=0.001, description="Largest part of a day in which a server is being profiled.")
    max_file_bytes: int = Field(
        default=2**28, ge=2**16, le=2**34, description="Longest trace that is read, in bytes; a longer one is refused."
    )
    start_profile: bool = Field(
        default=False,
        description="Use SGLang's /start_profile for servers that are not on the channel; it stops the server for as "
        "long as the trace is written.",
    )


class Probe(Section):
    """The same fixed work again and again: is it the machine that has become slower?"""

    enabled: bool = Field(default=True, description="Do the fixed work of the CPU now and then, and on suspicion.")
    interval_s: Seconds = Field(default=3600.0, description="Seconds between two probes in quiet times.")
    suspicion_interval_s: Seconds = Field(
        default=300.0,
        description="Seconds between two probes, whatever the reason; the pace until there are some to compare with.",
    )
    max_cpu_pressure: Ratio = Field(
        default=0.2,
        description="Share of the time in which work of the node waited for a CPU, above which only a suspicion is "
        "worth a probe.",
    )
    gpu: bool = Field(default=False, description="Probe the GPUs too; needs gpu_python.")
    gpu_python: str = Field(
        default="",
        max_length=4096,
        description="Python of an environment that has torch, such as SGLang's, for the fixed work of the GPUs.",
    )
    gpu_free_bytes: int = Field(
        default=2 * 2**30, ge=2**30, le=2**40, description="Memory that must be free on a GPU before it is probed."
    )
    max_gpu_load: Ratio = Field(
        default=0.5, description="Share of a GPU in use above which it is left alone, whoever asks."
    )


class Log(Section):
    """What the daemon writes about itself."""

    reloads: ClassVar[bool] = True

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field(
        default="console",
        description="Form of a line; where systemd's journal reads it, console gives entries with fields.",
    )


class Settings(BaseSettings):
    """All settings of the daemon."""

    model_config = SettingsConfigDict(env_prefix="CYCLEWATCH_", env_nested_delimiter="__", extra="forbid", frozen=True)

    node: str = Field(default="", max_length=253, description="Name of this node; empty for the host's name.")
    state_dir: Path = Field(
        default=Path("/var/lib/cyclewatch"), description="Directory of the database and the reports."
    )
    targets: tuple[Target, ...] = Field(
        default=(), description="Servers to watch; empty to watch every server found from its rings."
    )
    rings: Rings = Rings()
    forward_pass: ForwardPass = ForwardPass()
    discovery: Discovery = Discovery()
    engine: Engine = Engine()
    host: Host = Host()
    gpu: Gpu = Gpu()
    self: SelfUsage = SelfUsage()
    windows: Windows = Windows()
    detection: Detection = Detection()
    profiling: Profiling = Profiling()
    probe: Probe = Probe()
    store: Store = Store()
    incidents: Incidents = Incidents()
    alerts: Alerts = Alerts()
    web: Web = Web()
    log: Log = Log()

    @field_validator("targets")
    @classmethod
    def _are_apart(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """Two of one name would be one target, and one of them never asked."""
        for key in ("name", "url"):
            seen = [getattr(target, key) for target in targets]
            if twice := next((one for one in seen if seen.count(one) > 1), None):
                raise PydanticCustomError("targets", f"two have the {key} {twice}: give each its own")
        return targets

    @property
    def database_url(self) -> str:
        """SQLAlchemy address of the database."""
        return self.store.url or f"sqlite:///{self.state_dir / 'cyclewatch.db'}"
