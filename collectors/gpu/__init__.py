"""The GPU collector: everything that NVML tells of GPUs, through one door.

`door.py` is the door, `pynvml_door.py` the real one, `recording.py` one that plays recorded answers. `collector.py`
is where to begin to read: it runs the turns of `session.py` in the thread of `worker.py`.
"""
