"""The real door: NVML by way of nvidia-ml-py, whose module is named pynvml and is loaded when the door is opened."""

import ctypes
from collections.abc import Sequence
from typing import Any

from cyclewatch.collectors.gpu.door import (
    Answer,
    Code,
    Event,
    Field,
    Handle,
    Memory,
    MigSlice,
    Number,
    NvmlError,
    ProcessMemory,
    ProcessUse,
    Text,
    Utilization,
)

_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by NVML_VALUE_TYPE_*."""
_WIDE = {"ulVal", "ullVal", "sllVal"}
"""Those of 64 bits."""
_PCIE_BYTES = {197, 198}
"""Fields that count bytes over PCIe (NVML_FI_DEV_PCIE_COUNT_*_BYTES); see `NvmlDoor.fields`."""
_MIG_MAX = 64
_LIBRARY = "libnvidia-ml.so.1"

# The constants are those of nvml.h: _SM and _MEMORY are clocks (nvmlClockType_t), _GPU a sensor, _SLOWDOWN a threshold.
_SM, _MEMORY = 1, 2
_GPU = 0
_SLOWDOWN = 1
_NUMBERS: dict[Number, tuple[str, tuple[int, ...]]] = {
    Number.SM_CLOCK: ("nvmlDeviceGetClockInfo", (_SM,)),
    Number.MEMORY_CLOCK: ("nvmlDeviceGetClockInfo", (_MEMORY,)),
    Number.SM_CLOCK_MAX: ("nvmlDeviceGetMaxClockInfo", (_SM,)),
    Number.MEMORY_CLOCK_MAX: ("nvmlDeviceGetMaxClockInfo", (_MEMORY,)),
    Number.EVENT_REASONS: ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    Number.THROTTLE_REASONS: ("nvmlDeviceGetCurrentClocksThrottleReasons", ()),
    Number.POWER: ("nvmlDeviceGetPowerUsage", ()),
    Number.POWER_LIMIT: ("nvmlDeviceGetPowerManagementLimit", ()),
    Number.POWER_LIMIT_DEFAULT: ("nvmlDeviceGetPowerManagementDefaultLimit", ()),
    Number.POWER_LIMIT_ENFORCED: ("nvmlDeviceGetEnforcedPowerLimit", ()),
    Number.TEMPERATURE: ("nvmlDeviceGetTemperatureV", (_GPU,)),
    Number.TEMPERATURE_V1: ("nvmlDeviceGetTemperature", (_GPU,)),
    Number.TEMPERATURE_MARGIN: ("nvmlDeviceGetMarginTemperature", ()),
    Number.TEMPERATURE_SLOWDOWN: ("nvmlDeviceGetTemperatureThreshold", (_SLOWDOWN,)),
    Number.PCIE_GENERATION: ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
    Number.PCIE_GENERATION_MAX: ("nvmlDeviceGetMaxPcieLinkGeneration", ()),
    Number.PCIE_WIDTH: ("nvmlDeviceGetCurrPcieLinkWidth", ()),
    Number.PCIE_WIDTH_MAX: ("nvmlDeviceGetMaxPcieLinkWidth", ()),
    Number.PERSISTENCE_MODE: ("nvmlDeviceGetPersistenceMode", ()),
    Number.ECC_MODE: ("nvmlDeviceGetEccMode", ()),
    Number.MIG_MODE: ("nvmlDeviceGetMigMode", ()),
    Number.CUDA_DRIVER: ("nvmlSystemGetCudaDriverVersion", ()),
}
_TEXTS = {
    Text.NAME: "nvmlDeviceGetName",
    Text.UUID: "nvmlDeviceGetUUID",
    Text.VBIOS: "nvmlDeviceGetVbiosVersion",
    Text.DRIVER: "nvmlSystemGetDriverVersion",
    Text.NVML: "nvmlSystemGetNVMLVersion",
}


class PynvmlDoor:
    """NVML as nvidia-ml-py calls it."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._gpus: dict[int | None, Handle] = {}
        self._metrics: Any = None

    def _call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 (ctypes' own types stay in here)
        function = getattr(self._nvml, name, None)
        if function is None:
            raise NvmlError(Code.FUNCTION_NOT_FOUND)  # an older nvidia-ml-py
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise NvmlError(error.value) from None

    def open(self) -> None:
        """Load the library and initialise it."""
        try:
            ctypes.CDLL(_LIBRARY)
        except OSError:
            raise NvmlError(Code.LIBRARY_NOT_FOUND) from None
        import pynvml  # noqa: PLC0415 (6 MB that a node without GPUs need not have)

        self._nvml = pynvml
        self._call("nvmlInit")

    def close(self) -> None:
        """Shut NVML down; all handles are void."""
        self._gpus = {}
        self._call("nvmlShutdown")

    def gpu_count(self) -> int:
        """GPUs of the node."""
        return int(self._call("nvmlDeviceGetCount"))

    def gpu(self, index: int) -> Handle:
        """The GPU of that index, from 0."""
        handle = self._call("nvmlDeviceGetHandleByIndex", index)
        self._gpus[_address(handle)] = handle
        return handle

    def number(self, gpu: Handle | None, query: Number) -> int:
        """The answer to `query`."""
        name, arguments = _NUMBERS[query]
        answer = self._call(name, *(() if gpu is None else (gpu,)), *arguments)
        # Modes come with the one that will hold after the next reset.
        return int(answer[0] if isinstance(answer, list | tuple) else answer)

    def text(self, gpu: Handle | None, query: Text) -> str:
        """The answer to `query`."""
        return str(self._call(_TEXTS[query], *(() if gpu is None else (gpu,))))

    def fields(self, gpu: Handle, fields: Sequence[Field]) -> list[Answer]:
        """The values of many fields in one call, in their order."""
        values = self._call("nvmlDeviceGetFieldValues", gpu, [tuple(field) for field in fields])
        return [_answer(value) for value in values]

    def memory(self, gpu: Handle) -> Memory:
        """Memory of a GPU or MIG slice; what the driver keeps for itself is not `used`."""
        memory = self._call("nvmlDeviceGetMemoryInfo", gpu, self._nvml.nvmlMemory_v2)
        return Memory(memory.total, memory.used)

    def utilization(self, gpu: Handle) -> Utilization:
        """How busy the GPU was."""
        rates = self._call("nvmlDeviceGetUtilizationRates", gpu)
        return Utilization(rates.gpu, rates.memory)

    def processes(self, gpu: Handle) -> list[ProcessMemory]:
        """Processes that compute on the GPU."""
        listed = self._call("nvmlDeviceGetComputeRunningProcesses", gpu)
        return [ProcessMemory(one.pid, -1 if one.usedGpuMemory is None else one.usedGpuMemory) for one in listed]

    def process_use(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """Samples after `since_us`."""
        samples = self._call("nvmlDeviceGetProcessesUtilizationInfo", gpu, since_us)
        return [ProcessUse(one.pid, one.timeStamp, one.smUtil) for one in samples]

    def process_use_v1(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """The same from the older call."""
        samples = self._call("nvmlDeviceGetProcessUtilization", gpu, since_us)
        return [ProcessUse(one.pid, one.timeStamp, one.smUtil) for one in samples]

    def mig_slices(self, gpu: Handle) -> list[MigSlice]:
        """The MIG devices that exist at present."""
        slices = []
        for index in range(min(self._call("nvmlDeviceGetMaxMigDeviceCount", gpu), _MIG_MAX)):
            try:
                handle = self._call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
            except NvmlError as error:
                if error.code == Code.NOT_FOUND:
                    continue  # room for one, but none there
                raise
            uuid = str(self._call("nvmlDeviceGetUUID", handle))
            instance = self._call("nvmlDeviceGetGpuInstanceId", handle)
            slices.append(MigSlice(handle, uuid, instance, self._call("nvmlDeviceGetComputeInstanceId", handle)))
        return slices

    def gpm_supported(self, gpu: Handle) -> bool:
        """Whether the chip has GPU performance monitoring."""
        return bool(self._call("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice)

    def gpm_buffer(self) -> Handle:
        """Room for one sample."""
        return self._call("nvmlGpmSampleAlloc")

    def gpm_free(self, buffer: Handle) -> None:
        """Give a buffer back."""
        self._call("nvmlGpmSampleFree", buffer)

    def gpm_sample(self, gpu: Handle, gpu_instance: int | None, buffer: Handle) -> None:
        """Fill a buffer, for the whole GPU or for one of its MIG instances."""
        if gpu_instance is None:
            self._call("nvmlGpmSampleGet", gpu, buffer)
        else:
            self._call("nvmlGpmMigSampleGet", gpu, gpu_instance, buffer)

    def gpm_metrics(self, older: Handle, newer: Handle, metrics: Sequence[int]) -> list[Answer]:
        """What happened between two samples, for each metric."""
        if self._metrics is None:  # 19 KB, kept for all calls
            self._metrics = self._nvml.c_nvmlGpmMetricsGet_t()
        wanted = self._metrics
        wanted.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        wanted.numMetrics = len(metrics)
        wanted.sample1, wanted.sample2 = older, newer
        places = wanted.metrics
        for place, metric in enumerate(metrics):
            places[place].metricId = metric
        self._call("nvmlGpmMetricsGet", wanted)
        return [Answer(places[place].value, places[place].nvmlReturn) for place in range(len(metrics))]

    def event_set(self) -> Handle:
        """A set to wait on."""
        return self._call("nvmlEventSetCreate")

    def event_free(self, events: Handle) -> None:
        """Give a set back."""
        self._call("nvmlEventSetFree", events)

    def event_register(self, events: Handle, gpu: Handle, kinds: int) -> None:
        """Have the events of these types, as far as the GPU has them, end up in the set."""
        supported = self._call("nvmlDeviceGetSupportedEventTypes", gpu)
        if not supported & kinds:
            raise NvmlError(Code.NOT_SUPPORTED)
        self._call("nvmlDeviceRegisterEvents", gpu, supported & kinds, events)

    def event_wait(self, events: Handle, timeout_ms: int) -> Event | None:
        """The next event, or None where none came in that time."""
        try:
            data = self._call("nvmlEventSetWait_v2", events, timeout_ms)
        except NvmlError as error:
            if error.code == Code.TIMEOUT:
                return None
            raise
        return Event(self._gpus.get(_address(data.device)), data.eventType, data.eventData, data.gpuInstanceId)


def _address(handle: Any) -> int | None:  # noqa: ANN401 (a pointer of ctypes)
    return ctypes.cast(handle, ctypes.c_void_p).value


def _answer(value: Any) -> Answer:  # noqa: ANN401 (a structure of ctypes)
    if value.nvmlReturn != Code.SUCCESS:
        return Answer(0, value.nvmlReturn)
    if not 0 <= value.valueType < len(_VALUES):
        return Answer(0, Code.UNKNOWN)
    member = _VALUES[value.valueType]
    if value.fieldId in _PCIE_BYTES and member not in _WIDE:
        return Answer(0, Code.NOT_SUPPORTED)
    return Answer(getattr(value.value, member))
