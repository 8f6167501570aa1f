# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations say what poseidon.h and its parts say."""
import ctypes
import pathlib
import re

import pytest

from poseidon import library

pytestmark = pytest.mark.always
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "poseidon" / "c"
PARTS = [FOLDER / name for name in ("job.h", "step.h", "observation.h", "place.h")]
SCALARS = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
           "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double, "poseidon_code": ctypes.c_int32,
           "poseidon_traffic": library.Traffic}
STRUCTS = {"status": library.Status, "view": library.View, "options": library.Options,
           "layer": library.Layer, "plan": library.Plan, "layer_plan": library.LayerPlan, "push": library.Push,
           "factors": library.Factors, "rows": library.Rows, "gathered": library.Gathered, "memory": library.Memory, "span": library.Span,
           "place_wanted": library.PlaceWanted, "place": library.Place, "meeting_options": library.MeetingOptions,
           "statistics": library.Statistics, "layer_statistics": library.LayerStatistics, "traffic": library.Traffic}


def declared():
    return re.sub(r"//[^\n]*", "", "".join(part.read_text() for part in PARTS))


def fields_of(text, struct):
    """(name, type) of each field, the type as ctypes has it; None is any pointer."""
    body = re.search(r"typedef struct poseidon_%s \{(.*?)\n\} poseidon_%s;" % (struct, struct), text, re.S)[1]
    for field in filter(None, (" ".join(part.split()) for part in body.split(";"))):
        function = re.match(r".*\(\*(\w+)\)\(", field)
        array = re.fullmatch(r"char (\w+)\[(\d+)\]", field)
        if function:
            yield function[1], None
        elif array:
            yield array[1], ctypes.c_char * int(array[2])
        elif "*" in field:
            yield field.rpartition("*")[2].strip(), None
        else:
            kind, name = field.split()
            yield name, SCALARS[kind]


def test_structs():
    text = declared()
    for name, struct in STRUCTS.items():
        expected = list(fields_of(text, name))
        assert [field for field, _ in struct._fields_] == [field for field, _ in expected], name
        for (field, ours), (_, theirs) in zip(struct._fields_, expected):
            assert (ctypes.sizeof(ours) == ctypes.sizeof(ctypes.c_void_p) and not issubclass(ours, ctypes.c_size_t)
                    if theirs is None else ours is theirs), f"{name}.{field}"


def test_functions():
    text = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", " ".join(declared().split()))  # a function is one argument
    functions = dict(re.findall(r"POSEIDON_API [\w \*]*?poseidon_(\w+)\((.*?)\);", text))
    for name, arguments in library.FALLIBLE.items():
        given = functions[name].split(",")
        assert len(given) == len(arguments) + 1 and "poseidon_status*" in given[-1], name
    for name, (_, arguments) in library.PLAIN.items():
        given = [] if functions[name] == "void" else functions[name].split(",")
        assert len(given) == len(arguments), name


def test_numbers():
    text = declared()
    number = lambda name: int(re.search(r"POSEIDON_%s = (-?\d+)" % name, text)[1])
    assert (number("F32"), number("F64"), number("I64")) == (library.F32, library.F64, library.I64)
    assert number("GRADIENT") == library.GRADIENT and number("NO_CULPRIT") == library.NO_CULPRIT
    assert number("FACTORS") == library.FACTORS
    assert (number("GIVEN_RANK"), number("GIVEN_WORKERS")) == (library.GIVEN_RANK, library.GIVEN_WORKERS)
    assert (number("FORWARD"), number("BACKWARD")) == (library.FORWARD, library.BACKWARD)
    assert [number("LANE_" + lane.upper().replace(" ", "_")) for lane in library.LANES] == list(range(len(library.LANES)))
    assert library.WIRE == {"auto": number("WIRE_AUTO"), "tls": number("WIRE_TLS"), "auth": number("WIRE_AUTH"),
                            "plain": number("WIRE_PLAIN")}
    assert library.POLICY == {"time": number("POLICY_TIME"), "bytes": number("POLICY_BYTES")}
