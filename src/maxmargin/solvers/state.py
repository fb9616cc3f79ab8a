"""The state of a solver: one record of arrays and numbers, all it needs to go on, and its copy on disk.

A checkpoint is that record in a model file (a zip of JSON and ``.npy``, no pickle), written atomically. It names the problem by
a fingerprint, so that training resumes only what it interrupted; k passes, a checkpoint, and k more give bit for bit what 2k
passes give.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.problems.factor_graphs import FactorGraphs

State = TypeVar("State")


def fingerprint(problem: Any, options: Mapping[str, Any]) -> str:
    """A digest of the problem's arrays and of the options that shape the run.

    Problems other than `FactorGraphs` say by which arrays they are known (``fingerprint_arrays``).
    """
    digest = hashlib.sha256()
    if isinstance(problem, FactorGraphs):
        arrays = (*problem.arrays, *problem.variable_features.arrays, *problem.factor_features.arrays)
    else:
        arrays = problem.fingerprint_arrays()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(sorted(options.items())).encode())
    return digest.hexdigest()


def data_key(problem: Any) -> int:
    """A sum over the data that states may depend on; of large arrays, over a sample."""
    total = 0
    if isinstance(problem, FactorGraphs):
        a = problem.arrays
        features = (*problem.variable_features.arrays, *problem.factor_features.arrays)
        arrays: Any = (a.examples, a.labels, a.losses, a.weight, a.variable_scores, a.factor_scores, *features)
    elif hasattr(problem, "fingerprint_arrays"):
        arrays = problem.fingerprint_arrays()
    else:
        # An oracle that shows nothing of its data is its own data.
        return id(problem)
    for array in arrays:
        flat = np.asarray(array).ravel()
        sample = np.ascontiguousarray(flat[:: max(1, flat.size // 65536)])
        total = zlib.crc32(sample.view(np.uint8).data, total)
    return total


def save_state(path: str | os.PathLike[str], solver: str, state: Any, key: str) -> None:
    """Write a state (a dataclass of arrays, numbers and lists of numbers) atomically."""
    numbers: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif isinstance(value, dict):
            for name, column in value.items():
                arrays[f"{field.name}.{name}"] = np.asarray(column, np.float64)
        else:
            # Floats as hexadecimal text: exact, and infinity has a name.
            numbers[field.name] = value.hex() if isinstance(value, float) else value
    header = {"checkpoint": solver, "fingerprint": key, "numbers": numbers, "digest": _digest(numbers, arrays)}
    write_model(path, header, arrays)


def _digest(numbers: Any, arrays: Mapping[str, Any]) -> str:
    """A digest of a whole state: its numbers, and the names, dtypes, shapes and bytes of its arrays."""
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def load_state(path: str | os.PathLike[str], solver: str, kind: type[State], key: str) -> State:
    """Read a state written by `save_state` for the same solver and problem."""
    header, arrays = read_model(path)
    if header.get("checkpoint") != solver or header.get("fingerprint") != key:
        raise OptionError(
            f"The checkpoint {os.fspath(path)!r} belongs to another solver, data set or setting; "
            "delete it to start afresh, or name another file."
        )
    # What is in the arrays goes to kernels as it is.
    if header.get("digest") != _digest(header.get("numbers"), arrays):
        raise ModelFileError(f"The checkpoint {os.fspath(path)!r} was altered: its digest does not fit its content.")
    values: dict[str, Any] = {
        name: float.fromhex(value) if isinstance(value, str) else value for name, value in header["numbers"].items()
    }
    for name, array in arrays.items():
        field, _, column = name.partition(".")
        if column:
            values.setdefault(field, {})[column] = array.tolist()
        else:
            values[field] = array
    return kind(**values)
