# SPDX-License-Identifier: Apache-2.0
"""pycaffe over the trainer's nets and solvers: `import poseidon.caffe as caffe`.

Names, arguments and what they do are those of Caffe 1.0's Python interface; docs/caffe/python.md says what differs. It needs the
Caffe trainer (pip install 'poseidon-train[caffe]', or a checkout after make build) and NumPy; caffe_pb2 and NetSpec need
protobuf.
"""
from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

try:
    import numpy as _numpy  # noqa: F401
except ImportError as _error:
    raise ImportError(f"poseidon.caffe needs NumPy, which cannot be imported ({_error}): pip install numpy") from None

from . import io, layer
from .blob import Blob, BlobVec
from .classifier import Classifier
from .detector import Detector
from .layer import Layer
from .net import TEST, TRAIN, Net
from .settings import (Timer, has_nccl, init_log, layer_type_list, log, set_device, set_mode_cpu, set_mode_gpu,
                       set_multiprocess, set_random_seed, set_solver_count, set_solver_rank, solver_count, solver_rank)
from .solver import (AdaDeltaSolver, AdaGradSolver, AdamSolver, NesterovSolver, RMSPropSolver, SGDSolver, Solver,
                     get_solver)

__all__ = ["TEST", "TRAIN", "AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "Blob", "BlobVec", "Classifier", "Detector", "Layer", "Net",
           "NesterovSolver", "RMSPropSolver", "SGDSolver", "Solver", "Timer", "get_solver", "has_nccl", "init_log", "io", "layer_type_list",
           "log", "set_device", "set_mode_cpu", "set_mode_gpu", "set_multiprocess",
           "set_random_seed", "set_solver_count", "set_solver_rank", "solver_count", "solver_rank", "stand_in"]

layer.serve()

_LATE = {"NetSpec": "net_spec", "layers": "net_spec", "params": "net_spec", "to_proto": "net_spec", "net_spec": "", "proto": "", "draw": ""}

if TYPE_CHECKING:
    from . import draw, net_spec, proto
    from .net_spec import NetSpec, layers, params, to_proto
    __version__: str
else:
    def __getattr__(name):
        # What needs protobuf is imported when it is asked for.
        if name == "__version__":
            return "1.0.0"  # the Caffe whose interface this is
        if name not in _LATE:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        module = importlib.import_module("." + (_LATE[name] or name), __name__)
        if name == "proto":
            importlib.import_module(".proto.caffe_pb2", __name__)
        return getattr(module, name) if _LATE[name] else module


class _StandIn:
    """Finds `caffe.x` where this package is what `caffe` means: its module `poseidon.caffe.x`."""

    def __init__(self) -> None:
        self.own: dict[str, Any] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return ModuleSpec(name, self) if name.startswith("caffe.") else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        module = importlib.import_module(__name__ + spec.name[len("caffe"):])
        self.own[spec.name] = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self.own.pop(module.__spec__.name)  # the module stays what it is


def stand_in() -> None:
    """From here on `import caffe` and `from caffe.proto import caffe_pb2` mean this package, in every module of the process. Layers in
    Python have it anyhow, where no other Caffe is installed."""
    if not any(isinstance(finder, _StandIn) for finder in sys.meta_path):
        sys.meta_path.insert(0, _StandIn())
    sys.modules["caffe"] = sys.modules[__name__]
