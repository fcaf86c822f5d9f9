"""The only module that touches NVML, the management library that comes with NVIDIA's driver."""

from __future__ import annotations

import ctypes

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE."""


def read_device_names(library: str = LIBRARY) -> tuple[tuple[str, ...], str | None]:
    """Give the names of the GPUs, and the reason when there is none."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return (), "no NVIDIA driver library"
    status = nvml.nvmlInit_v2()
    if status:
        return (), f"the NVIDIA driver does not answer (NVML error {status})"
    try:
        names = _read_names(nvml)
    finally:
        nvml.nvmlShutdown()
    return names, None if names else "the NVIDIA driver sees no GPU"


def _read_names(nvml: ctypes.CDLL) -> tuple[str, ...]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return ()
    names = []
    for index in range(count.value):
        device, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
            continue
        if not nvml.nvmlDeviceGetName(device, name, _NAME_BYTES):
            names.append(name.value.decode("utf-8", "replace"))
    return tuple(names)
