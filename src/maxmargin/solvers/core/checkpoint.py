"""The state of a solver: one record of arrays and numbers, all it needs to go on, and its copy on disk.

A checkpoint is that record in a model file (a zip of JSON and ``.npy``, no pickle), written atomically. It says what
it is of (`RunKey`), so that training resumes only what it interrupted, and says what differs; k passes, a checkpoint, and k more
give bit for bit what 2k passes give.

The checkpoint before the last one stays beside it (`previous_of`), for the day when the disk has lost the last: there is a whole
file at every moment, and one that is damaged is left alone with a warning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pickle
import shutil
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import as_numpy
from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.jit import Struct
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.python_problem import PythonProblem

State = TypeVar("State")


#: Of the layout of checkpoints; others are refused.
_VERSION = 4
_SECONDS = 30.0


class Checkpoints(os.PathLike[str]):
    """Where a run keeps its state, and how often; a path alone is ``Checkpoints(path)``.

    Parameters
    ----------
    path : path-like
    seconds : float
        Write it after so many seconds, at the end of a pass; and at the end of the run.
    passes : int, optional
        Write it after so many passes, too.
    resume : bool
        Refuse to begin afresh: the checkpoint must be there.
    """

    def __init__(
        self, path: str | os.PathLike[str], seconds: float = _SECONDS, passes: int | None = None, resume: bool = False
    ) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.0 <= seconds <= 1e9:
            raise OptionError(f"seconds={seconds!r} is not possible; it must be a number from 0 to 1e9.")
        if passes is not None and (isinstance(passes, bool) or not isinstance(passes, int) or passes < 1):
            raise OptionError(f"passes={passes!r} is not possible; it must be a whole number of at least 1, or None.")
        self.path, self.seconds, self.passes, self.resume = os.fspath(path), float(seconds), passes, resume
        if resume and not os.path.exists(self.path):
            raise OptionError(f"There is no checkpoint {self.path!r} to resume from.")

    @classmethod
    def of(cls, given: str | os.PathLike[str]) -> Checkpoints:
        """What was given, or a path with the rest as usual.

        Parameters
        ----------
        given : path or Checkpoints
        """
        return given if isinstance(given, Checkpoints) else cls(given)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"Checkpoints({self.path!r}, {self.seconds:g}, {self.passes}, {self.resume})"


def previous_of(path: str | os.PathLike[str]) -> str:
    """Where the checkpoint before the last one is."""
    return f"{os.fspath(path)}.previous"


class RunKey(NamedTuple):
    """What a checkpoint is of."""

    solver: str
    #: A digest of the problem's arrays.
    data: str
    #: What shapes the run, C and the seed included, as Python prints it.
    options: dict[str, str]

    @classmethod
    def of(cls, solver: str, problem: Any, options: Mapping[str, Any]) -> Self:
        """The key of a run."""
        return cls(solver, digest_of(problem), {name: repr(value) for name, value in options.items()})

    def differences(self, other: RunKey) -> str:
        """What is not as in the other key, which is the one of the checkpoint; "" if they are the same."""
        found = ["the data differs"] if other.data != self.data else []
        # Options of another solver say nothing.
        if other.solver != self.solver:
            return "; ".join([f"the solver is {other.solver!r} there and {self.solver!r} here", *found])
        for name in sorted(self.options.keys() | other.options.keys()):
            there, here = (options.get(name, "not set") for options in (other.options, self.options))
            if there != here:
                found.append(f"{name} is {there} there and {here} here")
        return "; ".join(found)


def digest_of(problem: Any) -> str:
    """A digest of the problem's arrays."""
    return str(_digest(_all_arrays(problem)).hexdigest())


def data_key(problem: Any, weights: bool = True) -> int:
    """A number for all that bounds depend on: planes and dual points of a state are those of this data alone.

    Without `weights`, those of the examples are left out.
    """
    if isinstance(problem, PythonProblem):
        # Its arrays say nothing of the inputs and of the model's own attributes; its code is taken to be the same.
        own = problem.with_weights(None) if not weights and hasattr(problem, "with_weights") else problem
        try:
            seen = pickle.dumps((own.model, own.X, own.Y))
        except Exception:
            # Anything may be among a user's objects, and raise anything.
            return _token(problem)
        return _number(_digest((*own.fingerprint_arrays(), np.frombuffer(seen, np.uint8))))
    if isinstance(problem, FactorGraphs):
        same = problem.with_weights(None) if not weights else problem
        return _once(problem, ("data", weights), lambda: _all_arrays(same))
    if not weights and hasattr(problem, "with_weights"):
        problem = problem.with_weights(None)
    return _number(_digest(_all_arrays(problem))) if hasattr(problem, "fingerprint_arrays") else _token(problem)


def structure_key(problem: FactorGraphs) -> int:
    """A number for the graphs, templates and constraints, whatever the features, labels, losses and weights are."""
    a = problem.arrays
    data = ("examples", "weight", "labels", "losses", "costs", "variable_scores", "factor_scores", "largest")

    def arrays() -> Iterable[NDArray[Any]]:
        forbidden = (a.variable_scores == -np.inf, a.factor_scores == -np.inf)
        # The other columns follow from these.
        examples = (a.examples[name] for name in ("structure", "variable_row", "factor_row"))
        return (*(getattr(a, name) for name in a._fields if name not in data), *examples, *forbidden)

    return _once(problem, ("structure",), arrays)


#: Numbers of problems of arrays, which never change.
_known: weakref.WeakKeyDictionary[Any, dict[Any, int]] = weakref.WeakKeyDictionary()


def _once(problem: FactorGraphs, kind: tuple[Any, ...], arrays: Callable[[], Iterable[NDArray[Any]]]) -> int:
    known = _known.setdefault(problem, {})
    if kind not in known:
        known[kind] = _number(_digest(arrays()))
    return known[kind]


def _all_arrays(problem: Any) -> Iterable[NDArray[Any]]:
    """Problems other than `FactorGraphs` say by which arrays they are known (``fingerprint_arrays``)."""
    if isinstance(problem, FactorGraphs):
        features = problem.variable_features, problem.factor_features
        graphs = (one for one in problem.arrays if isinstance(one, np.ndarray))
        # Tables of zeros are those of no loss, too.
        whole = (np.ones(1),) if problem.zero_one else ()
        signs = () if problem.signs is None else (problem.signs,)
        return (*graphs, *whole, *signs, *(array for one in features for array in one.fingerprint_arrays()))
    arrays: Iterable[NDArray[Any]] = problem.fingerprint_arrays()
    return arrays


#: NumPy takes long to write down the type of a record.
_name_of = lru_cache(str)


def _digest(arrays: Iterable[NDArray[Any]]) -> Any:
    """SHA-256 of the dtypes, shapes and bytes of some arrays, which may go on."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{_name_of(array.dtype)}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest


#: Numbers of problems that cannot be compared: each is like nothing but itself.
_tokens: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def _token(problem: Any) -> int:
    return _tokens.setdefault(problem, int.from_bytes(os.urandom(7), "big"))


def _number(digest: Any) -> int:
    return int.from_bytes(digest.digest()[:7], "big")


def save_state(path: str | os.PathLike[str], state: Any, key: RunKey) -> None:
    """Write a state (a dataclass of arrays, structs of arrays, numbers and lists of numbers) atomically."""
    numbers: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, np.ndarray) or field.name in state.on_device:
            arrays[field.name] = as_numpy(value)
        elif isinstance(value, Struct):
            arrays |= {f"{field.name}.{name}": array for name, array in value._asdict().items()}
        elif isinstance(value, dict):
            for name, column in value.items():
                arrays[f"{field.name}.{name}"] = np.asarray(column, np.float64)
        else:
            # Floats as hexadecimal text: exact, and infinity has a name.
            numbers[field.name] = value.hex() if isinstance(value, float) else value
    header = {
        "checkpoint": key.solver,
        "checkpoint_version": _VERSION,
        "data": key.data,
        "options": key.options,
        "numbers": numbers,
        "digest": _content(numbers, arrays),
    }
    _keep_previous(path)
    write_model(path, header, arrays)


def _keep_previous(path: str | os.PathLike[str]) -> None:
    """Give the checkpoint that is there a second name, in one step, before another takes its place."""
    place = os.path.realpath(path)
    if os.path.exists(place):
        _link(place, previous_of(path))


def _link(place: str, other: str) -> None:
    """Make another name of a file, in one step."""
    beside = f"{other}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    try:
        os.link(place, beside)
    except OSError:
        # Some file systems have no links.
        shutil.copyfile(place, beside)
    os.replace(beside, other)


def _read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The last checkpoint that can be read, with its place: the one before, if the last is damaged."""
    place, kept = os.fspath(path), previous_of(path)
    try:
        header, arrays = read_model(place)
        if header.get("checkpoint_version") == _VERSION and header.get("digest") != _content(header["numbers"], arrays):
            raise ModelFileError(f"The checkpoint {place!r} was altered: its digest does not fit its content.")
        return place, header, arrays
    except (ModelFileError, OSError, KeyError) as error:
        if not os.path.exists(kept):
            raise
        header, arrays = read_model(kept)
        warnings.warn(
            f"The checkpoint {place!r} cannot be read, and the one before it is taken: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        # Or the damaged one would be kept as the one before the next.
        _link(kept, place)
        return kept, header, arrays


def _content(numbers: Any, arrays: Mapping[str, Any]) -> str:
    """A digest of a whole state."""
    names = sorted(arrays)
    digest = _digest(arrays[name] for name in names)
    digest.update(json.dumps([names, numbers], sort_keys=True).encode())
    return str(digest.hexdigest())


def _key_in(place: str, header: Mapping[str, Any]) -> RunKey:
    """What a file says that it is a checkpoint of."""
    advice = "delete it to start afresh, or name another file."
    solver, data, options = (header.get(name) for name in ("checkpoint", "data", "options"))
    if not isinstance(solver, str):
        raise OptionError(f"The file {place!r} is no checkpoint; {advice}")
    if header.get("checkpoint_version") != _VERSION:
        raise OptionError(f"The checkpoint {place!r} is of another version of this library; {advice}")
    if not isinstance(data, str) or not isinstance(options, dict):
        raise ModelFileError(f"The checkpoint {place!r} does not say which run it belongs to; {advice}")
    return RunKey(solver, data, options)


def option_in(path: str | os.PathLike[str], name: str) -> Any:
    """An option of the run that a checkpoint belongs to."""
    place, header, _ = _read(path)
    return _key_in(place, header).options.get(name)


def load_state(path: str | os.PathLike[str], kind: type[State], key: RunKey) -> State:
    """Read a state written by `save_state` for the same solver, problem and options."""
    place, header, arrays = _read(path)
    differences = key.differences(_key_in(place, header))
    if differences:
        raise OptionError(
            f"The checkpoint {place!r} belongs to another run: {differences}. Delete it to start afresh, or name "
            "another file."
        )
    # What is in the arrays goes to kernels as it is.
    if header.get("digest") != _content(header.get("numbers"), arrays):
        raise ModelFileError(f"The checkpoint {place!r} was altered: its digest does not fit its content.")
    values: dict[str, Any] = {
        name: float.fromhex(value) if isinstance(value, str) else value for name, value in header["numbers"].items()
    }
    parts: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        field, _, part = name.partition(".")
        if part:
            parts.setdefault(field, {})[part] = array
        else:
            values[field] = array
    types = get_type_hints(kind)
    for field, found in parts.items():
        struct = isinstance(types[field], type) and issubclass(types[field], Struct)
        values[field] = types[field](**found) if struct else {part: array.tolist() for part, array in found.items()}
    return kind(**values)
