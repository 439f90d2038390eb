"""The daemon's end of Kineto's daemon channel: PyTorch processes ask here whether they shall record a profile.

Written by trying it with unmodified PyTorch and by reading libkineto's `IpcFabricConfigClient` and dynolog's
`ipcfabric` (BSD and MIT). `docs/profiling.md` says how it goes and what it costs.
"""
