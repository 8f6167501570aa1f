# SPDX-License-Identifier: Apache-2.0
"""Caffe's messages as protobuf classes: NetParameter, SolverParameter, BlobProto, Datum and all others, and TRAIN and TEST.

They are made of the description that the trainer's library carries, by whatever protobuf is installed (from 4.21 on), in a
pool of their own, so that another Caffe in the process does not matter.
"""
from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any

from .. import library as c

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...


def protobuf(name: str) -> Any:
    """The module `name` of the package google.protobuf."""
    try:
        return importlib.import_module("google.protobuf" + name)
    except ImportError as error:
        raise ImportError(f"caffe_pb2 needs the package protobuf, which cannot be imported ({error}): pip install protobuf") from None


def _described() -> Any:
    """The file's description, under Caffe's own package name."""
    length = ctypes.c_size_t()
    address = c.library().descriptor(ctypes.byref(length))
    file = protobuf(".descriptor_pb2").FileDescriptorProto.FromString(ctypes.string_at(address, length.value))
    ours = f".{file.package}."

    def rename(messages: Any) -> None:
        for message in messages:
            for field in message.field:
                if field.type_name.startswith(ours):
                    field.type_name = ".caffe." + field.type_name[len(ours):]
            rename(message.nested_type)

    rename(file.message_type)
    file.package, file.name = "caffe", "caffe.proto"
    return file


def _classes() -> dict[str, Any]:
    file = _described()
    pool = protobuf(".descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName(file.name)
    factory = protobuf(".message_factory")
    class_of = getattr(factory, "GetMessageClass", None) or factory.MessageFactory(pool).GetPrototype
    names: dict[str, Any] = {name: class_of(message) for name, message in found.message_types_by_name.items()}
    wrapper = protobuf(".internal.enum_type_wrapper").EnumTypeWrapper
    for name, enum in found.enum_types_by_name.items():
        names[name] = wrapper(enum)
        names.update((value.name, value.number) for value in enum.values)
    names["DESCRIPTOR"] = found
    return names


globals().update(_classes())
