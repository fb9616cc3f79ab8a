"""What the scores of chains, trees and graphs have in common.

Conventions
-----------
Batch first: B examples of at most N variables. Labels are integers (B, N); those at padding are not read, and are -1 in answers.
Scores are float32 or float64, and half precision is made float32; -inf forbids a state, and NaN and
+inf are refused. Everything that is given lies on one device and has one dtype.

Values (B,) carry gradients: that of a maximum is the indicator of the best labeling, that of the log-partition the marginals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maxmargin.errors import DataError, OptionError, did_you_mean

#: Costs that have names; they are those of `maxmargin.problems.losses`.
COSTS = ("hamming", "fraction", "count")


class Max(NamedTuple):
    """The best labelings of a batch.

    Attributes
    ----------
    values : tensor (B,)
        Their scores, with gradients.
    labels : int tensor (B, N)
        The labelings, -1 at padding.
    exact : bool tensor (B,)
        Whether the labeling is proved to be the best.
    """

    values: Tensor
    labels: Tensor
    exact: Tensor


class TopK(NamedTuple):
    """The k best labelings of a batch, best first.

    Attributes
    ----------
    values : tensor (B, k)
        Their scores, with gradients; -inf where there are fewer than k.
    labels : int tensor (B, k, N)
        The labelings, -1 at padding and where there are fewer than k.
    """

    values: Tensor
    labels: Tensor


class StructuredScores(ABC):
    """Scores of all labelings of a batch of examples.

    Attributes
    ----------
    solved : "exact", "relaxed" or "approximate"
        What the last maximum was: the best labeling; the value of a relaxation, which is at least its score; or that of
        some labeling.
    constrained : bool
        Whether any state or joint state may be forbidden.
    """

    solved: str = "exact"
    constrained: bool = False

    # ------------------------------------------------------------------------------------------------ what each kind has

    @property
    @abstractmethod
    def sizes(self) -> Tensor:
        """Number of variables (B,) of each example."""

    @abstractmethod
    def score(self, labels: Tensor) -> Tensor:
        """Score (B,) of one labeling (B, N) an example, with gradients.

        Parameters
        ----------
        labels : int tensor (B, N)
            Labelings.
        """

    @abstractmethod
    def log_partition(self) -> Tensor:
        """The logarithm of the sum of exp(score) over all labelings (B,), with gradients: the marginals."""

    @abstractmethod
    def max(self) -> Max:
        """The best labeling of each example."""

    @abstractmethod
    def top_k(self, k: int) -> TopK:
        """The k best labelings of each example.

        Parameters
        ----------
        k : int
            How many.
        """

    @abstractmethod
    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Labelings (n, B, N), drawn independently from p(y) ~ exp(score(y)).

        Parameters
        ----------
        n : int
            How many of each example.
        generator : torch.Generator, optional
            Where random numbers come from.
        """

    @abstractmethod
    def marginals(self) -> Tensor:
        """Probability (B, N, K) of each state of each variable, 0 at padding."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy (B,) of p(y) ~ exp(score(y)), in nats."""

    @abstractmethod
    def costs(self, labels: Tensor, cost: Any) -> Tensor:
        """What each state of each variable costs if `labels` are the truth, in the coordinates of the variables' scores.

        Parameters
        ----------
        labels : int tensor (B, N)
            The truth.
        cost : "hamming", "fraction", "count" or tensor (K, K) or (B, N, K)
            A wrong label costs 1 / the mean number of variables in the batch, 1 / that of its example, or 1;
            ``cost[truth, label]``; or what each state of each variable costs.
        """

    @abstractmethod
    def augmented(self, costs: Tensor) -> StructuredScores:
        """The same scores with costs added.

        Parameters
        ----------
        costs : tensor
            What `costs` returns.
        """

    def hinge_maximum(self) -> Tensor:
        """The value (B,) that a hinge loss takes for the maximum: that of the relaxation, where one was solved."""
        return self.max().values


# ------------------------------------------------------------------------------------------------------- checks


def check_tensor(value: Any, name: str, shapes: tuple[tuple[Any, ...], ...]) -> Tensor:
    """A tensor of one of the shapes (None: any size), or a sentence; half precision is made float32."""
    if not isinstance(value, Tensor):
        raise DataError(f"{name} is of type {type(value).__name__}; expected a tensor.")
    if not any(
        value.dim() == len(shape) and all(b in (None, a) for a, b in zip(value.shape, shape, strict=True))
        for shape in shapes
    ):
        known = " or ".join("(" + ", ".join("any" if b is None else str(b) for b in shape) + ")" for shape in shapes)
        raise DataError(f"{name} has shape {tuple(value.shape)}; expected {known}.")
    if not value.is_floating_point():
        raise DataError(f"{name} has dtype {value.dtype}; expected float32 or float64.")
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def check_alike(one: Tensor, other: Tensor, names: tuple[str, str]) -> None:
    """Refuse tensors of different devices or precisions."""
    for what, first, second in (("device", one.device, other.device), ("dtype", one.dtype, other.dtype)):
        if first != second:
            raise DataError(f"{names[0]} and {names[1]} differ in {what}: {first} and {second}.")


def check_mask(lengths: Any, mask: Any, like: Tensor) -> Tensor | None:
    """The lengths (B,) by a mask or by lengths; None if neither is given. The values are checked by `check_values`."""
    n, size = like.shape[:2]
    if lengths is not None and mask is not None:
        raise OptionError("Both lengths and mask are given; one of them says it all.")
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype not in (torch.bool, torch.uint8):
            found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise DataError(f"mask is {found}; expected a bool tensor.")
        if tuple(mask.shape) != (n, size):
            raise DataError(f"mask has shape {tuple(mask.shape)}; expected ({n}, {size}).")
        _check_device(mask, "mask", like)
        return mask.bool().sum(1)
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths, device=like.device if not isinstance(lengths, Tensor) else None)
    if tuple(lengths.shape) != (n,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise DataError(
            f"lengths has shape {tuple(lengths.shape)} and dtype {lengths.dtype}; expected ({n},) whole numbers."
        )
    _check_device(lengths, "lengths", like)
    return lengths.long()


def _check_device(value: Tensor, name: str, like: Tensor) -> None:
    if value.device != like.device:
        raise DataError(f"{name} is on the device {value.device}, the scores on {like.device}.")


def check_values(
    scores: dict[str, Tensor], lengths: Tensor | None, mask: Tensor | None, size: int
) -> tuple[bool, bool]:
    """Refuse NaN and +inf, masks with holes and empty examples, with one transfer from the device.

    Returns whether any score is -inf, and whether all examples have the full size.
    """
    given = [one.detach() for one in scores.values() if one.numel()]
    # Few operations: the largest tensor, and all the others as one.
    parts = given if len(given) < 3 else [given[0], torch.cat([one.reshape(-1) for one in given[1:]])]
    ends = [end for one in parts for end in torch.aminmax(one)]
    if lengths is not None:
        ends += [end.to(ends[0] if ends else end) for end in torch.aminmax(lengths)]
        if mask is not None:
            prefix = torch.arange(size, device=mask.device) < lengths[:, None]
            ends.append((mask.bool() == prefix).all().to(ends[0]))
    if not ends:
        return False, True
    found: list[float] = torch.stack(ends).tolist()
    full = True
    if lengths is not None:
        shortest, longest, *rest = found[2 * len(parts) :]
        _explain_lengths(shortest >= 1, longest <= size, all(rest), lengths, mask)
        full = shortest == size
    lowest, highest = found[0 : 2 * len(parts) : 2], found[1 : 2 * len(parts) : 2]
    if not all(one < float("inf") for one in highest):
        for name, one in scores.items():
            if one.numel() and not bool(one.max() < torch.inf):
                word = "NaN" if bool(torch.isnan(one).any()) else "+inf"
                raise DataError(f"{name} holds {word}; scores must be finite, or -inf to forbid a state.")
    return any(one == -float("inf") for one in lowest), full


def _explain_lengths(some: bool, fits: bool, whole: bool, lengths: Tensor, mask: Tensor | None) -> None:
    """Raise the sentence for lengths that cannot be; three words say what was found."""
    if not some:
        m = int((lengths < 1).nonzero()[0, 0])
        if mask is not None:
            raise DataError(
                f"The mask leaves example {m} without a variable; every example needs at least 1.", example=m
            )
        raise DataError(f"lengths[{m}] is {int(lengths[m])}; every example needs at least 1.", example=m)
    if not fits:
        m = int(lengths.argmax())
        raise DataError(f"lengths[{m}] is {int(lengths[m])}, but the scores have fewer positions.", example=m)
    if mask is not None and not whole:
        prefix = torch.arange(mask.shape[1], device=mask.device) < lengths[:, None]
        m = int((mask.bool() != prefix).any(1).nonzero()[0, 0])
        raise DataError(
            f"The mask of example {m} has a hole: it must be True for the first positions and False for the rest.",
            example=m,
        )


def check_labels(labels: Any, like: Tensor, lengths: Tensor | None) -> Tensor:
    """Labels (B, N) of scores (B, N, K) as int64, 0 at padding, or a sentence."""
    n, size, states = like.shape
    if not isinstance(labels, Tensor):
        raise DataError(f"The labels are of type {type(labels).__name__}; expected a tensor.")
    if tuple(labels.shape) != (n, size) or labels.is_floating_point() or labels.dtype == torch.bool:
        raise DataError(
            f"The labels have shape {tuple(labels.shape)} and dtype {labels.dtype}; expected ({n}, {size}) whole numbers."
        )
    _check_device(labels, "The tensor of labels", like)
    labels = labels.long()
    if lengths is not None:
        labels = torch.where(torch.arange(size, device=like.device) < lengths[:, None], labels, 0)
    low, high = torch.stack(torch.aminmax(labels)).tolist()
    if low < 0 or high >= states:
        m, t = ((labels < 0) | (labels >= states)).nonzero()[0].tolist()
        raise DataError(f"Label [{m}, {t}] is {int(labels[m, t])}; expected a state from 0 to {states - 1}.", example=m)
    return labels


def check_count(value: Any, name: str) -> int:
    """A whole number of at least 1, or a sentence."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}={value!r} is not possible; it must be a whole number of at least 1.")
    return value


def cost_of_wrong(cost: str, sizes: Tensor, like: Tensor) -> Tensor:
    """What a wrong variable of each example costs (B,), by a cost that has a name."""
    if cost not in COSTS:
        raise OptionError(
            f'cost={cost!r} is not known; use "hamming", "fraction", "count" or a tensor.' + did_you_mean(cost, COSTS)
        )
    numbers = sizes.to(like)
    if cost == "count":
        return torch.ones_like(numbers)
    return 1.0 / (numbers.mean().expand_as(numbers) if cost == "hamming" else numbers)


def padded_costs(labels: Tensor, cost: Any, like: Tensor, sizes: Tensor) -> Tensor:
    """Costs (B, N, K) of each state; of a table (K, K) ``cost[truth, predicted]``, as it is."""
    if isinstance(cost, Tensor):
        n, size, states = like.shape
        cost = check_tensor(cost, "cost", ((states, states), (n, size, states)))
        check_alike(cost, like, ("cost", "the scores"))
        if not bool(torch.isfinite(cost).all()) or bool((cost < 0).any()):
            raise DataError("cost must hold finite numbers that are not negative.")
        return cost[labels] if cost.dim() == 2 else cost
    if not isinstance(cost, str):
        raise OptionError(f'cost={cost!r} is not possible; use "hamming", "fraction", "count" or a tensor.')
    wrong = cost_of_wrong(cost, sizes, like)[:, None, None].expand(like.shape)
    return wrong.scatter(2, labels[..., None], 0.0)
