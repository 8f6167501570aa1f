# SPDX-License-Identifier: Apache-2.0
"""Nets written in Python, as pycaffe's NetSpec: `n.conv = L.Convolution(n.data, kernel_size=5, num_output=20)`.

`layers` makes a layer of any type, `params` has the constants of their parameters, and NetSpec gives blobs their names.
"""
from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from .proto import caffe_pb2


class Top:
    """One output of a layer."""

    def __init__(self, fn: Function, n: int) -> None:
        """`fn`: the layer. `n`: which of its outputs."""
        self.fn, self.n = fn, n

    def to_proto(self) -> Any:
        """The NetParameter of all layers that this output needs."""
        return to_proto(self)


class Function:
    """A layer with its inputs and parameters."""

    def __init__(self, type_name: str, inputs: tuple[Any, ...], params: dict[str, Any]) -> None:
        """`type_name`: its type. `inputs`: outputs of other layers. `params`: fields of the layer or of its parameter, and `ntop` and
        `in_place`."""
        for index, top in enumerate(inputs):
            if not isinstance(top, Top):
                raise TypeError(f"{type_name} input {index} is not a Top (type is {type(top)})")
        self.type_name, self.inputs = type_name, inputs
        self.params = {name: value for name, value in params.items() if name not in ("ntop", "in_place")}
        self.ntop, self.in_place = int(params.get("ntop", 1)), bool(params.get("in_place", False))
        self.tops = tuple(Top(self, n) for n in range(self.ntop))


class _Writer:
    """Writes layers in the order in which they need one another. What has no name gets that of its type and a number."""

    def __init__(self, names: dict[Any, str]) -> None:
        self.names: dict[Any, str] = dict(names)
        self.numbers = Counter[str]()
        self.layers: OrderedDict[Function, Any] = OrderedDict()

    def name_of(self, thing: Any, type_name: str) -> str:
        if thing not in self.names:
            self.numbers[type_name] += 1
            self.names[thing] = f"{type_name}{self.numbers[type_name]}"
        return self.names[thing]

    def write(self, fn: Function) -> None:
        """Adds the layer, and before it those that it reads."""
        unfinished = [fn]
        while unfinished:  # a net may be deeper than Python's stack
            now = unfinished[-1]
            before = [top.fn for top in now.inputs if top.fn not in self.layers]
            if before:
                unfinished.append(before[0])
                continue
            unfinished.pop()
            if now not in self.layers:
                self.layers[now] = self.layer_of(now)

    def layer_of(self, fn: Function) -> Any:
        layer = caffe_pb2.LayerParameter()
        layer.type = fn.type_name
        layer.bottom.extend(self.layers[top.fn].top[top.n] for top in fn.inputs)
        if fn.in_place:
            layer.top.extend(layer.bottom)
        else:
            layer.top.extend(self.name_of(top, fn.type_name) for top in fn.tops)
        layer.name = self.name_of(fn.tops[0] if fn.tops else fn, fn.type_name)
        own = _parameter_fields().get(fn.type_name)
        for name, value in fn.params.items():
            if own is not None and not name.endswith("param") and name in getattr(layer, own).DESCRIPTOR.fields_by_name:
                assign_proto(getattr(layer, own), name, value)
            else:
                assign_proto(layer, name, value)
        return layer

    def net(self) -> Any:
        net = caffe_pb2.NetParameter()
        net.layer.extend(self.layers.values())
        return net


def _parameter_fields() -> dict[str, str]:
    """By a layer's type the field that has its parameters: "convolution_param" of "Convolution"."""
    fields = caffe_pb2.LayerParameter.DESCRIPTOR.fields
    fields_of: dict[str, str] = {field.message_type.name.removesuffix("Parameter"): field.name for field in fields if field.name.endswith("_param")}
    return fields_of


def assign_proto(proto: Any, name: str, val: Any) -> None:
    """Sets the field `name` of the message `proto` to `val`: a dictionary for a message, a list or one value for a repeated
    field."""
    if name not in proto.DESCRIPTOR.fields_by_name:
        raise AttributeError(f"{proto.DESCRIPTOR.name} has no field '{name}'")
    field = getattr(proto, name)
    repeated = hasattr(field, "extend")
    for value in (val if isinstance(val, (list, tuple)) else [val]) if repeated else [val]:
        if isinstance(value, dict):
            message = field.add() if repeated else field
            message.SetInParent()
            for key, inner in value.items():
                assign_proto(message, key, inner)
        elif repeated:
            field.append(value)
        else:
            setattr(proto, name, value)


def to_proto(*tops: Top) -> Any:
    """The NetParameter of all layers that `tops` need. Blobs get names of their own."""
    writer = _Writer({})
    for top in tops:
        writer.write(top.fn)
    return writer.net()


class NetSpec:
    """A net whose attributes are its named blobs: outputs of layers."""

    tops: OrderedDict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", OrderedDict())

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.tops[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __delattr__(self, name: str) -> None:
        del self.tops[name]

    def to_proto(self) -> Any:
        """The NetParameter of all layers that the named blobs need."""
        writer = _Writer({top: name for name, top in self.tops.items()})
        for top in self.tops.values():
            writer.write(top.fn if isinstance(top, Top) else top)
        return writer.net()


class Layers:
    """`layers.X(bottom, ..., field=value)` makes a layer of type X. It returns its output, several with `ntop=2` and so on, and the layer
    itself with `ntop=0`."""

    def __getattr__(self, name: str) -> Any:
        def made(*bottoms: Any, **fields: Any) -> Any:
            fn = Function(name, bottoms, fields)
            return fn if fn.ntop == 0 else fn.tops[0] if fn.ntop == 1 else fn.tops
        return made


class _Parameter:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, constant: str) -> Any:
        return getattr(getattr(caffe_pb2, self._name + "Parameter"), constant)


class Parameters:
    """`params.Pooling.MAX` is the constant MAX of PoolingParameter, and so on."""

    def __getattr__(self, name: str) -> Any:
        return _Parameter(name)


layers = Layers()
params = Parameters()
