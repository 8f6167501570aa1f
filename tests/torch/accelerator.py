# SPDX-License-Identifier: Apache-2.0
"""The kind of device on which test_devices.py trains: POSEIDON_TEST_DEVICE, as "cuda"; without it "late" (late.py)."""
import os

import torch

KIND = os.environ.get("POSEIDON_TEST_DEVICE") or "late"


def why_not():
    """Why nothing can run on it here; None where it can. Begins no work on it: the caller's children shall."""
    if KIND == "late":
        import late
        return None if late.LIBRARY.exists() else f"{late.LIBRARY.name} is not built"
    return None if getattr(torch, KIND).is_available() else f"torch finds no {KIND} device"


def load(delays=None):
    """Makes it known to torch. `delays`, of the late device only: microseconds of each computation and of each copy, and whether it
    takes memory of others."""
    if KIND == "late":
        import late
        late.load()
        if delays:
            late.library.late_set_delays(*delays[:2])
            late.library.late_set_registers(delays[2] if len(delays) > 2 else True)


def two():
    """Two of these devices, or the same twice where there is one."""
    return f"{KIND}:0", f"{KIND}:{getattr(torch, KIND).device_count() - 1}"


def as_on_the_host(make):
    """The model that `make` makes, with the first weights that it has on the host: torch draws others on a GPU."""
    model = make()
    if KIND != "late":
        torch.manual_seed(torch.initial_seed())
        with torch.device("cpu"):
            model.load_state_dict(make().state_dict())
    return model


class Watch:
    """Between `begin` and `end` nobody waits for the device."""

    def begin(self):
        if KIND == "late":
            import late
            self.before = late.library.late_waits()
        else:
            getattr(torch, KIND).set_sync_debug_mode("error")

    def end(self):
        if KIND == "late":
            import late
            assert late.library.late_waits() == self.before, "a hook has waited for the device"
        else:
            getattr(torch, KIND).set_sync_debug_mode("default")
