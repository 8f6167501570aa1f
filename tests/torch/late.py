# SPDX-License-Identifier: Apache-2.0
"""The device "late" of torch (tests/shared/late_device), with streams and events as torch.cuda has them."""
import contextlib
import ctypes
import os
import pathlib
import types

import torch

BUILT = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "tests" / "shared" / "liblate_device.so"
LIBRARY = pathlib.Path(os.environ.get("POSEIDON_LATE_DEVICE") or BUILT)


def device_of(device=None):
    return torch.device("late", torch.accelerator.current_device_index()) if device is None else torch.device(device)


class Stream(torch.Stream):
    def __new__(cls, device=None, **options):
        return super().__new__(cls, device_of(device), **options)


def event(enable_timing=False, blocking=False):
    return torch.Event("late", enable_timing=enable_timing, blocking=blocking)


@contextlib.contextmanager
def stream(one):
    before = torch.accelerator.current_stream(one.device)
    torch.accelerator.set_stream(one)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


@contextlib.contextmanager
def device(one):
    before = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(torch.device(one).index)
    try:
        yield
    finally:
        torch.accelerator.set_device_index(before)


library = None  # with late_set_delays and late_waits


def bytes_in(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))


copy_plain = torch.UntypedStorage.copy_


def copy(storage, source, non_blocking=None):
    """UntypedStorage.copy_, for torch.save and deepcopy: torch's own knows no other devices than its own."""
    if "late" not in (storage.device.type, source.device.type):
        return copy_plain(storage, source, non_blocking)
    bytes_in(storage).copy_(bytes_in(source))
    return storage


def load():
    """Makes the device known to torch."""
    global library
    library = ctypes.CDLL(str(LIBRARY))
    library.late_waits.restype = ctypes.c_long
    library.late_lose_after.argtypes = [ctypes.c_long]
    library.late_set_registers.argtypes = [ctypes.c_bool]
    library.cudaHostRegister.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    library.cudaHostUnregister.argtypes = [ctypes.c_void_p]
    torch.utils.rename_privateuse1_backend("late")
    module = types.ModuleType("torch.late")
    vars(module).update(
        Stream=Stream, Event=event, stream=stream, device=device, is_available=lambda: True, device_count=lambda: 2,
        current_device=torch.accelerator.current_device_index, _is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None,
        current_stream=lambda which=None: torch.accelerator.current_stream(device_of(which)),
        cudart=lambda: library, get_amp_supported_dtype=lambda: [torch.bfloat16],
        synchronize=lambda which=None: torch.accelerator.synchronize(device_of(which)))
    torch._register_device_module("late", module)
    torch.utils.generate_methods_for_privateuse1_backend(for_module=True, for_tensor=True)
    torch.UntypedStorage.copy_ = copy
