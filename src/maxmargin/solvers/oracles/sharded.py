"""One plane for examples that lie in shards, wherever those are: what cutting planes need of data that is never in one place.

    psi = sum_s mass_s psi_s / sum_s mass_s,      ell and the mean hinge likewise

Shard s answers a vector of weights with `Part`: its own mean plane and mean hinge (or tangent and value, of the logistic loss),
times its mass, which is the sum of its examples' weights. Nothing else travels, so that the bytes of a round depend on the number
of weights and of shards alone. Parts are added up in the order of the shards, `FAN_IN` neighbours at a time and then their sums, so
that the bits depend on the shards alone, and not on who answers first, or where.

A `ShardedProblem` has the joint oracle (joint_plane.py) and the exp-oracle (exp_oracle.py) of all shards, and the solvers one-slack
and bundle train on it as on any problem. Who asks the shards is its `Shards`: `LocalShards` here, a cluster in `dask/`.

A shard keeps nothing from round to round, so one that is lost is made again and answers as before. That is why there is no cache of
planes here.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import as_numpy
from maxmargin.devices.vectors import nonzeros
from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.checkpoint import digest_of
from maxmargin.solvers.oracles.device_oracle import DeviceOracle
from maxmargin.solvers.oracles.exp_oracle import MeanMarginals, exp_oracle_of
from maxmargin.solvers.oracles.joint_plane import joint_oracle
from maxmargin.solvers.planes.arena import Arena
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: Parts that are added up at a time.
FAN_IN = 16
#: Share of entries that are not zero up to which a vector is sent as entries and places, 12 bytes each.
_SPARSE = 2.0 / 3.0
#: No vector is longer, nor are there more examples in a shard.
_MOST_WEIGHTS = 1 << 40


@dataclass(frozen=True, eq=False)
class Packed:
    """A vector as it is sent: entries and their places, or all entries."""

    size: int
    #: (nnz,), or None where all entries are there.
    index: NDArray[Any] | None
    value: NDArray[np.float64]

    @classmethod
    def of(cls, vector: NDArray[np.float64]) -> Packed:
        """A vector, packed."""
        size = len(vector)
        if np.count_nonzero(vector) > _SPARSE * size:
            return cls(size, None, vector.copy())
        index, value = nonzeros(vector, 1.0, 1)
        return cls(size, index.astype(np.int32) if size < 2**31 else index, value)

    def checked(self, size: int, what: str) -> Packed:
        """The vector itself, if it is one of this size, of finite numbers: what is sent may arrive damaged."""
        value: Any = self.value
        index: Any = self.index
        fits = type(self.size) is int and self.size == size and _is_vector(value, (np.float64,))
        if fits and index is None:
            fits = len(value) == size
        elif fits:
            fits = _is_vector(index, (np.int32, np.int64)) and len(index) == len(value) <= size
            fits = fits and (len(index) == 0 or (int(index.min()) >= 0 and int(index.max()) < size))
        if not fits:
            raise DataError(
                f"{what} is damaged: it is no vector of {size} numbers, whole or by entries and their places."
            )
        if not np.isfinite(value).all():
            raise DataError(f"{what} has numbers that are not finite.")
        return self

    def add_to(self, out: NDArray[np.float64]) -> None:
        """Add the vector to another one."""
        if self.index is None:
            out += self.value
        else:
            out[self.index] += self.value

    def dense(self) -> NDArray[np.float64]:
        """The vector, written out."""
        out = np.zeros(self.size)
        self.add_to(out)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.value.nbytes + (0 if self.index is None else self.index.nbytes)


@dataclass(frozen=True, eq=False)
class Part:
    """The answer of one shard, or of several: psi, ell and the hinge, summed over examples by their weights."""

    psi: Packed
    ell: float
    risk: float
    #: Bytes of all answers that are summed here, as they were sent.
    sent: int

    def checked(self, size: int) -> Part:
        """The answer itself, if it is one for vectors of this size."""
        if not isinstance(self.psi, Packed):
            raise DataError("The answer of a shard is damaged: it has no plane.")
        self.psi.checked(size, "The answer of a shard")
        numbers = (self.ell, self.risk)
        if (
            not all(isinstance(one, float | int) and math.isfinite(one) for one in numbers)
            or type(self.sent) is not int
        ):
            raise DataError("The answer of a shard is damaged: its loss and its hinge are no finite numbers.")
        return self

    @classmethod
    def of(cls, psi: NDArray[np.float64], ell: float, risk: float, sent: int = 0) -> Part:
        """A part, and what it takes to send it beside what was sent before."""
        packed = Packed.of(psi)
        return cls(packed, ell, risk, sent + packed.nbytes + 16)


def add_parts(parts: Sequence[Part], size: int) -> Part:
    """The sum of some parts, in their order, of vectors of this size."""
    out = np.zeros(size)
    for one in parts:
        _checked(one, size).psi.add_to(out)
    ell, risk = sum(one.ell for one in parts), sum(one.risk for one in parts)
    return Part.of(out, ell, risk, sum(one.sent for one in parts))


def add_all(parts: Sequence[Part], size: int) -> Part:
    """The sum of all parts: of neighbours, and of those sums, until one is left."""
    if not parts:
        raise DataError("No shard has answered.")
    while len(parts) > 1:
        parts = [add_parts(parts[k : k + FAN_IN], size) for k in range(0, len(parts), FAN_IN)]
    return _checked(parts[0], size)


def _checked(part: Any, size: int) -> Part:
    if not isinstance(part, Part):
        raise DataError(f"A shard has answered with a {type(part).__name__}, which is no plane.")
    return part.checked(size)


def _is_vector(array: Any, types: tuple[Any, ...]) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype in types and array.dtype.isnative


@dataclass(frozen=True)
class Question:
    """What is asked of every shard, whatever the weights are."""

    #: An objective, or "slack" for the hinge with slack rescaling.
    objective: str
    inference: str | Engine
    #: Where shards answer: "cpu", "cuda" or "torch" (`maxmargin.devices`).
    device: str = "cpu"


@dataclass(frozen=True)
class ShardFacts:
    """What there is to know of a shard."""

    n_examples: int
    mass: float
    #: Length of the vectors, and, for factor graphs asked for planes, the shapes of the weights of variables and of factors.
    size: int
    shapes: tuple[tuple[int, int], tuple[int, int]] | None
    certificate: str
    name: str
    reason: str
    #: Whether the oracle can be asked with more effort.
    thorough: bool
    #: Of the examples.
    digest: str


@dataclass(frozen=True, eq=False)
class Shard:
    """Some of the examples: a problem, and the sum of its examples' weights, whose mean may be what it likes in the problem."""

    problem: Any
    mass: float


def shards_of(problem: FactorGraphs, n_shards: int) -> list[Shard]:
    """The examples of a problem in shards of about the same number, in their order."""
    cuts = np.linspace(0, problem.n_examples, min(n_shards, problem.n_examples) + 1).astype(int).tolist()
    # The weights have mean 1 over all, and stay as they are.
    return [Shard(problem.shard(begin, end), float(end - begin)) for begin, end in pairwise(cuts)]


class ShardOracle:
    """The examples of one shard and their oracle. What is sent to another machine is the examples, and the oracle is made there."""

    def __init__(self, shard: Shard, question: Question, threads: int = 1) -> None:
        self.shard, self.question, self.threads = shard, question, threads
        self.lock = threading.Lock()
        self.smooth = question.objective in ("log", "softmax-margin")
        self.oracle: Any
        if question.device != "cpu":
            if question.objective == "slack":
                raise OptionError(
                    f'device="{question.device}" has no slack rescaling; use rescaling="margin", or device="cpu".'
                )
            self.oracle = DeviceOracle(shard.problem, question.device, question.inference, question.objective != "log")
        elif self.smooth:
            self.oracle = exp_oracle_of(shard.problem, question.inference, question.objective != "log")
        else:
            rescaling = "slack" if question.objective == "slack" else "margin"
            self.oracle = joint_oracle(shard.problem, question.inference, rescaling)
            self.oracle.keeps = False
            self.planes = self.oracle.cache(1)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shard, self.question, self.threads)

    def facts(self) -> ShardFacts:
        """What there is to know of the shard."""
        shapes = getattr(self.oracle, "shapes", None)
        inner = getattr(self.oracle, "oracle", None)
        return ShardFacts(
            n_examples=self.oracle.n_examples,
            mass=self.shard.mass,
            size=self.oracle.n_weights if self.smooth else self.oracle.size,
            shapes=None if shapes is None else tuple(shapes),
            certificate=self.oracle.certificate,
            name=self.oracle.name,
            reason=self.oracle.reason,
            thorough=getattr(inner, "thorough", None) is not None,
            digest=digest_of(self.shard.problem),
        )

    def part(self, weights: Packed, in_earnest: bool = False) -> Part:
        """The shard's plane and hinge, or tangent and value, at these weights, times its mass."""
        if not isinstance(weights, Packed):
            raise DataError(f"The weights that a shard was asked with are a {type(weights).__name__}, and no vector.")
        size = self.oracle.n_weights if self.smooth else self.oracle.size
        u, mass = weights.checked(size, "The vector of weights").dense(), self.shard.mass
        with self.lock:
            if self.question.device != "cpu":
                return self._device_part(u)
            if self.smooth:
                found = self.oracle.mean(u, 1.0, self.threads)
                risk = self._mean(found.values)
                return Part.of(found.psi * mass, mass * found.ell, mass * risk)
            if getattr(self.oracle.oracle, "thorough", None) is not None:
                self.oracle.oracle.in_earnest = in_earnest
            plane, self.planes = self.oracle.find(u, self.planes, self.threads, 0)
            return Part.of(plane.dense(len(u)) * mass, mass * float(plane.ell), mass * self._mean(plane.hinges))

    def _device_part(self, u: NDArray[np.float64]) -> Part:
        """The same on a device, whose vectors come and go as flat weights."""
        oracle, w, mass = self.oracle, self.oracle.working(u), self.shard.mass
        if self.smooth:
            tangent = oracle.mean(w, 1.0, self.threads)
            psi, ell, values = tangent.psi, tangent.ell, tangent.values
        else:
            plane = oracle.mean_plane(w, self.threads)
            psi, ell, values = plane.value, plane.ell, plane.hinges
        return Part.of(oracle.flat(psi) * mass, mass * float(ell), mass * self._mean(as_numpy(values)))

    def _mean(self, values: NDArray[np.float64]) -> float:
        return float(np.sum(as_numpy(self.oracle.weight) * values)) / len(values)


class Shards(Protocol):
    """Who asks the shards."""

    def open(self, question: Question) -> list[ShardFacts]:
        """Make the oracles of all shards; what there is to know of these, in their order."""

    def sum_of_parts(self, weights: Packed, in_earnest: bool) -> Part:
        """The answers of all shards, added up in their order (`add_all`)."""


class LocalShards:
    """Shards in this process, one after the other."""

    def __init__(self, shards: Sequence[Shard], threads: int = 1) -> None:
        self.shards, self.threads = list(shards), threads
        self.oracles: list[ShardOracle] = []

    def open(self, question: Question) -> list[ShardFacts]:
        """Make the oracles."""
        self.oracles = [ShardOracle(one, question, self.threads) for one in self.shards]
        return [one.facts() for one in self.oracles]

    def sum_of_parts(self, weights: Packed, in_earnest: bool) -> Part:
        """The answers of all shards, added up."""
        return add_all([one.part(weights, in_earnest) for one in self.oracles], weights.size)


class ShardedProblem:
    """Examples in shards, as a problem for the solvers one-slack and bundle."""

    offers = ("max-oracle", "marginals", "features")
    rescales_slack = True
    #: Whether the engine of its oracles may be named.
    takes_engine = True

    def __init__(self, shards: Shards, device: str = "cpu") -> None:
        self.shards, self.device = shards, device
        self.facts: list[ShardFacts] = []

    @property
    def n_examples(self) -> int:
        """Number of examples, as far as the shards have been opened."""
        return sum(one.n_examples for one in self.facts)

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """The digests of the shards."""
        text = "".join(f"{one.digest}{float(one.mass).hex()}" for one in self.facts)
        return (np.frombuffer(text.encode("ascii"), np.uint8),)

    def joint_oracle(self, inference: str | Engine, rescaling: str) -> ShardedOracle:
        """One plane for all examples."""
        return ShardedOracle(self, Question("slack" if rescaling == "slack" else "margin", inference, self.device))

    def exp_oracle(self, loss_augmented: bool, inference: str | Engine) -> ShardedOracle:
        """One tangent for all examples."""
        return ShardedOracle(self, Question("softmax-margin" if loss_augmented else "log", inference, self.device))


class _Effort:
    """Whether oracles are asked for their best, where they can be: what a joint oracle's own oracle says of itself."""

    def __init__(self, thorough: bool) -> None:
        self.thorough = True if thorough else None
        self.in_earnest = False


class ShardedOracle:
    """The joint oracle, or the exp-oracle, of all shards."""

    has_images = False
    #: Whether planes of single examples can be kept.
    recalls = False
    keeps = False

    def __init__(self, problem: ShardedProblem, question: Question) -> None:
        self.shards, self.facts = problem.shards, problem.shards.open(question)
        problem.facts = self.facts
        _check_alike(self.facts)
        first = self.facts[0]
        self.size = self.n_weights = first.size
        self.shapes = first.shapes
        self.n_examples = problem.n_examples
        self.mass = float(sum(one.mass for one in self.facts))
        # One mean over all examples stands for those of single ones.
        self.weight = np.ones(1)
        worth = [one.certificate for one in self.facts]
        self.certificate = next((word for word in ("none", "relaxed") if word in worth), "exact")
        self.name = ", ".join(dict.fromkeys(one.name for one in self.facts))
        self.reason = "; ".join(dict.fromkeys(one.reason for one in self.facts))
        self.oracle = _Effort(any(one.thorough for one in self.facts))

    def cache(self, capacity: int) -> Arena:
        """Room for planes of single examples, of which there are none."""
        return Arena.empty(1, 2, 64, 1, products=False)

    def find(self, u: NDArray[np.float64], cache: Arena, threads: int, now: int) -> tuple[MeanPlane, Arena]:
        """The plane of largest slope at u."""
        total = self.shards.sum_of_parts(Packed.of(u), self.oracle.in_earnest)
        index, value = nonzeros(total.psi.dense(), 1.0 / self.mass, threads)
        return MeanPlane(index, value, total.ell / self.mass, np.array([total.risk / self.mass])), cache

    def mean(self, w: NDArray[np.float64], temperature: float, threads: int) -> MeanMarginals:
        """Means of expectations at w; the temperature is 1."""
        total = self.shards.sum_of_parts(Packed.of(w), False)
        return MeanMarginals(total.psi.dense() / self.mass, total.ell / self.mass, np.array([total.risk / self.mass]))

    def flat(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """A working vector as flat weights."""
        if self.shapes is None:
            return vector.copy()
        (p, b), (q, c) = self.shapes
        w_v, w_f = vector[: p * b].reshape(p, b), vector[p * b :].reshape(q, c)
        return np.concatenate([w_v.T.ravel(), w_f.T.ravel()])


def _check_alike(facts: Sequence[ShardFacts]) -> None:
    """Refuse shards that are not parts of one problem."""
    if not facts:
        raise DataError("There are no shards: the data is empty.")
    for number, one in enumerate(facts):
        _check_facts(number, one)
    first = facts[0]
    for number, one in enumerate(facts):
        if (one.size, one.shapes) != (first.size, first.shapes):
            raise DataError(
                f"Shard {number} has {one.size} weights, in blocks of shapes {one.shapes}, and shard 0 has {first.size}, in "
                f"{first.shapes}; all shards must have the same features and labels."
            )
        if not one.mass > 0.0:
            raise DataError(f"The weights of shard {number} add up to {one.mass}; they must be more than 0.")


def _check_facts(number: int, one: Any) -> None:
    """Refuse what a shard cannot say of itself: it may arrive damaged."""
    fits = isinstance(one, ShardFacts)
    fits = fits and all(type(count) is int and 0 <= count <= _MOST_WEIGHTS for count in (one.n_examples, one.size))
    fits = fits and isinstance(one.mass, float | int) and not isinstance(one.mass, bool) and math.isfinite(one.mass)
    fits = fits and all(isinstance(text, str) for text in (one.name, one.reason, one.digest, one.certificate))
    fits = fits and one.digest.isascii()
    fits = fits and one.certificate in ("exact", "relaxed", "none") and isinstance(one.thorough, bool | np.bool_)
    if fits and one.shapes is not None:
        shapes: Any = one.shapes
        fits = isinstance(shapes, tuple | list) and len(shapes) == 2
        fits = fits and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in shapes)
        fits = fits and all(isinstance(n, int | np.integer) and n >= 0 for pair in shapes for n in pair)
        fits = fits and sum(int(pair[0]) * int(pair[1]) for pair in shapes) == one.size
    if not fits:
        raise DataError(f"What shard {number} says of itself is damaged.")


def check_no_cache(cache: Any) -> None:
    """Refuse to keep planes of single examples, which would be lost with the machine that has them."""
    if cache != "auto" and int(cache) > 0:
        raise OptionError(
            f'cache={cache} is not possible for examples in shards, which keep nothing between rounds; use "auto" or 0.'
        )
