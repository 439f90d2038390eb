"""What the doctor looks at for the probe: whether GPUs can be probed, where that is wanted."""

from collections.abc import Iterator

from cyclewatch.collectors.probe.programs import ProbeError, torch_of
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.check import Check, Level

_SUBJECT = "probe of the GPUs"
_MEND = "name a Python that has torch with CUDA, such as SGLang's, and that this user may run"


def probe_checks(settings: Settings) -> Iterator[Check]:
    """Findings on the GPUs' probe; none where nobody has asked for it. No GPU is touched."""
    probe = settings.probe
    if not probe.gpu_python:
        if probe.gpu:
            yield Check(_SUBJECT, Level.BAD, "probe.gpu is true, but probe.gpu_python is not set", _MEND)
        return
    if not settings.gpu.enabled:
        mend = "set gpu.enabled = true: by its readings busy GPUs are left alone"
        yield Check(_SUBJECT, Level.BAD, "GPUs are not read", mend)
        return
    try:
        torch, gpus = torch_of(probe.gpu_python)
    except ProbeError as error:
        yield Check(_SUBJECT, Level.BAD, str(error), f"probe.gpu_python: {_MEND}")
        return
    if not gpus:
        yield Check(_SUBJECT, Level.BAD, f"{torch} of {probe.gpu_python} sees no GPU", f"probe.gpu_python: {_MEND}")
        return
    when = "now and then, and on suspicion" if probe.gpu and probe.enabled else "by `cyclewatch probe --gpu` alone"
    yield Check(_SUBJECT, Level.GOOD, f"{torch} sees {gpus}; they are probed {when}")
