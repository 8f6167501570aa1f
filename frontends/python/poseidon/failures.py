# SPDX-License-Identifier: Apache-2.0
"""Failures of a script: which exceptions are some, what the other workers hear of one, and how this process prints its own.

Of a job that fails, one worker has a cause and the others follow. The one prints the exception first and the script's own calls below;
calls inside packages are folded. The others print a line. POSEIDON_TRACEBACK=full unfolds everything.
"""
from __future__ import annotations

import os
import pathlib
import sys
import sysconfig
import traceback
from types import TracebackType

from .errors import PoseidonError

VARIABLE = "POSEIDON_TRACEBACK"
PACKAGE = str(pathlib.Path(__file__).resolve().parent) + os.sep
# Of Python itself, and packages of whatever environment.
LIBRARIES = tuple(path + os.sep for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if path)
# Characters of what an exception says and of its calls: together they fit into the message of a status (library.Status).
MOST_SAID = 400


def has_failed(ending: BaseException | None) -> bool:
    """Whether a script that ends with this exception under way, or with none, has failed: sys.exit(0) has not."""
    return ending is not None and not (isinstance(ending, SystemExit) and ending.code in (None, 0))


def is_folded(filename: str) -> bool:
    """Whether a file is not the script's own: of this package, of another that is installed, of Python."""
    return (filename.startswith((PACKAGE, "<frozen", *LIBRARIES)) or f"{os.sep}site-packages{os.sep}" in filename
            or f"{os.sep}dist-packages{os.sep}" in filename)


def own_calls(calls: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Those of the script; all, where it has none."""
    return [call for call in calls if not is_folded(call.filename)] or calls


def of_a_device(failure: BaseException) -> str | None:
    """What torch's failures of a device come to, in a sentence; None for others. By their names, as nothing here needs torch."""
    kind, said = f"{type(failure).__module__}.{type(failure).__name__}", str(failure)
    if kind == "torch.AcceleratorError":  # its other lines say how to look for the cause in a debugger
        return f"its device fails: {said.splitlines()[0] if said else kind}"
    if kind == "torch.OutOfMemoryError":  # behind what is free it says how torch's allocator can be set
        needs, free, _ = said.partition(" is free")
        return f"its device is out of memory: {needs}{free}; expected a smaller batch, or fewer workers that share the device"
    return None


def reason_of(failure: BaseException) -> str:
    """The line about a script's failure that the other workers of the job get, with the script's calls, the last one first."""
    said = " ".join((of_a_device(failure) or f"its script failed: {type(failure).__name__}: {failure}").split())
    if len(said) > MOST_SAID:  # as of a traceback from a loader's process, whose end says most
        said = f"{said[:100]} ... {said[105 - MOST_SAID:]}"
    calls = [f"{os.path.basename(call.filename)}:{call.lineno} in {call.name}" for call in own_calls(traceback.extract_tb(failure.__traceback__))]
    return said + (f" ({', '.join(reversed(calls))[:MOST_SAID]})" if calls else "")


def folded(calls: list[traceback.FrameSummary]) -> list[str]:
    """The lines of these calls; of each run of others than the script's how many there are."""
    if all(is_folded(call.filename) for call in calls):
        return traceback.format_list(calls)
    lines: list[str] = []
    hidden: list[traceback.FrameSummary] = []
    for call in [*calls, None]:
        if call is not None and is_folded(call.filename):
            hidden.append(call)
            continue
        if hidden:
            packages = list(dict.fromkeys(package_of(one.filename) for one in hidden))
            lines.append(f"  ... {len(hidden)} calls in {', '.join(packages)} ({VARIABLE}=full shows them)\n")
            hidden = []
        if call is not None:
            lines += traceback.format_list([call])
    return lines


def package_of(filename: str) -> str:
    """The name of the package or module that a file is of."""
    if filename.startswith(PACKAGE):
        return "poseidon"
    parts = pathlib.PurePath(filename).parts
    for folder in "site-packages", "dist-packages":
        if folder in parts[:-1]:
            return parts[parts.index(folder) + 1].removesuffix(".py")
    return "Python"


def text_of(failure: BaseException, rank: int) -> str:
    """What worker `rank` prints of its end."""
    sentence = "".join(traceback.format_exception_only(type(failure), failure))
    if isinstance(failure, PoseidonError) and failure.culprit not in (None, rank):
        return sentence
    lines = [sentence, "Traceback (most recent call last):\n", *folded(list(traceback.extract_tb(failure.__traceback__)))]
    seen = {id(failure)}
    while (cause := failure.__cause__ or (None if failure.__suppress_context__ else failure.__context__)) and id(cause) not in seen:
        seen.add(id(cause))
        lines += ["which followed from: ", *traceback.format_exception_only(type(cause), cause), *folded(list(traceback.extract_tb(cause.__traceback__)))]
        failure = cause
    return "".join(lines)


def install(rank: int) -> None:
    """From here on worker `rank` prints an exception that nobody catches so, unless something else prints them already."""
    if sys.excepthook is not sys.__excepthook__ or os.environ.get(VARIABLE) == "full":
        return

    def hook(kind: type[BaseException], failure: BaseException, calls: TracebackType | None) -> None:
        if isinstance(failure, Exception) and not hasattr(failure, "exceptions"):
            sys.stderr.write(text_of(failure, rank))
        else:  # Ctrl-C, and groups of exceptions, which have several tracebacks
            sys.__excepthook__(kind, failure, calls)
    sys.excepthook = hook
