"""ChainLayer: a last layer for taggers, with the weights of transitions as parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.torch.chains import ChainScores
from maxmargin.torch.losses import negative_log_likelihood, perceptron, softmax_margin, structured_hinge

#: Losses by the name that `ChainLayer.loss` takes; True: they take a cost.
KINDS: dict[str, tuple[Any, bool]] = {
    "hinge": (structured_hinge, True),
    "log": (negative_log_likelihood, False),
    "softmax-margin": (softmax_margin, True),
    "perceptron": (perceptron, False),
}


class ChainLayer(nn.Module):
    """The chain on top of a network: emissions (B, T, K) in, losses and labelings out.

    Parameters
    ----------
    n_tags : int
        K.
    boundary : bool
        Learn scores of the first and of the last tag.
    forbidden : list of (int, int), or bool array (K, K), optional
        Transitions that are never predicted.
    bio : list of K str, optional
        Names of the tags, "O", "B-kind" and "I-kind": I-kind stands only after B-kind and I-kind.

    Attributes
    ----------
    transitions : parameter (K, K)
        Score of a tag (row) followed by another (column).
    start, end : parameters (K,), or None
    """

    def __init__(
        self, n_tags: int, boundary: bool = True, forbidden: Any = None, bio: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        if isinstance(n_tags, bool) or not isinstance(n_tags, int) or n_tags < 1:
            raise OptionError(f"n_tags={n_tags!r} is not possible; it must be a whole number of at least 1.")
        self.n_tags = n_tags
        self.transitions = nn.Parameter(torch.empty(n_tags, n_tags))
        self.start = nn.Parameter(torch.empty(n_tags)) if boundary else None
        self.end = nn.Parameter(torch.empty(n_tags)) if boundary else None
        pairs, first = _constraints(n_tags, forbidden, bio)
        # Options of the layer, not weights: state_dict leaves them out.
        self.register_buffer("forbidden", pairs, persistent=False)
        self.register_buffer("forbidden_first", first, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters from -0.1 to 0.1, as pytorch-crf does."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        """What a printed network says of this layer."""
        return f"n_tags={self.n_tags}, boundary={self.start is not None}"

    def scores(self, emissions: Tensor, mask: Tensor | None = None, lengths: Any = None) -> ChainScores:
        """The scores of all tag sequences of a batch.

        Parameters
        ----------
        emissions : tensor (B, T, K)
            Score of each tag at each position.
        mask : bool tensor (B, T), optional
            True for the positions of each sentence, which come first.
        lengths : int tensor (B,), optional
            In the place of a mask, how many positions each sentence has.
        """
        if isinstance(emissions, Tensor) and (emissions.dim() != 3 or emissions.shape[2] != self.n_tags):
            raise DataError(f"emissions has shape {tuple(emissions.shape)}; expected (batch, length, {self.n_tags}).")
        start = self.start
        if self.forbidden_first is not None:
            zero = self.transitions.new_zeros(self.n_tags) if start is None else start
            start = torch.where(self.forbidden_first, -torch.inf, zero)
        parts = (self.transitions, start, self.end)
        if emissions.dtype != self.transitions.dtype and emissions.dtype in (torch.float16, torch.bfloat16):
            emissions = emissions.to(self.transitions.dtype)
        return ChainScores(emissions, *parts, lengths=lengths, mask=mask, forbidden=self.forbidden)

    def loss(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        kind: str = "hinge",
        cost: Any = "hamming",
        reduction: str = "mean",
    ) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        emissions : tensor (B, T, K)
        tags : int tensor (B, T)
        mask : bool tensor (B, T), optional
            True for the positions of each sentence, which come first.
        kind : "hinge", "log", "softmax-margin" or "perceptron"
        cost : "hamming", "fraction", "count" or tensor
            What a wrong tag costs, for "hinge" and "softmax-margin": 1 over the mean length of the batch, 1 over the length of its
            sentence, 1, or a tensor (K, K) of costs ``cost[truth, label]``, or (B, T, K). "log" and "perceptron" have none.
        reduction : "mean", "sum", "token" or "none"
            Over the sentences: the mean, the sum, the sum over the number of tags, or a loss for each.
        """
        if kind not in KINDS:
            known = ", ".join(f'"{name}"' for name in KINDS)
            raise OptionError(f"kind={kind!r} is not known; use one of {known}." + did_you_mean(kind, KINDS))
        function, takes_cost = KINDS[kind]
        more = {"cost": cost} if takes_cost else {}
        return function(self.scores(emissions, mask), tags, reduction=reduction, **more)

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
        """The same as `loss`.

        Parameters
        ----------
        emissions : tensor (B, T, K)
            Score of each tag at each position.
        tags : int tensor (B, T)
            The truth.
        mask : bool tensor (B, T), optional
            True for the positions of each sentence, which come first.
        **options : parameters of `loss`
            `kind`, `cost` and `reduction`.
        """
        return self.loss(emissions, tags, mask, **options)

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """The best tags of each sentence.

        Parameters
        ----------
        emissions : tensor (B, T, K)
            Score of each tag at each position.
        mask : bool tensor (B, T), optional
            True for the positions of each sentence, which come first.
        """
        scores = self.scores(emissions, mask)
        return [row[:n] for row, n in zip(scores.max().labels.tolist(), scores.sizes.tolist(), strict=True)]

    # ------------------------------------------------------------------------------------------------ ChainSVM

    @classmethod
    def from_svm(cls, model: Any, dtype: torch.dtype = torch.float64) -> tuple[Self, nn.Linear]:
        """The layer, and the linear layer that makes its emissions from features, of a fitted `ChainSVM` of order 1 at most.

        Tags are numbered in the order of ``model.classes_``.

        Parameters
        ----------
        model : ChainSVM
            A fitted model with a linear kernel.
        dtype : torch.dtype
            Type of the parameters.
        """
        if not hasattr(model, "coef_") or not hasattr(model, "transition_coef_"):
            raise OptionError("from_svm needs a fitted ChainSVM with a linear kernel.")
        if hasattr(model, "transition2_coef_") or hasattr(model, "emission_coef_"):
            raise OptionError("from_svm takes a ChainSVM with order=1 at most and emission_order=0; this one has more.")
        n_tags, p = model.coef_.shape
        layer = cls(n_tags, hasattr(model, "start_coef_"), model.forbidden_).to(dtype)
        if model.forbidden_first_ is not None:
            layer.register_buffer("forbidden_first", torch.as_tensor(model.forbidden_first_), persistent=False)
        linear = nn.Linear(p, n_tags, dtype=dtype)
        pairs = [
            (linear.weight, model.coef_),
            (linear.bias, model.intercept_),
            (layer.transitions, model.transition_coef_),
        ]
        if layer.start is not None:
            pairs += [(layer.start, model.start_coef_), (layer.end, model.end_coef_)]
        with torch.no_grad():
            for parameter, value in pairs:
                parameter.copy_(torch.tensor(value))
        return layer, linear

    def to_svm(self, linear: nn.Linear, classes: Sequence[Any], **parameters: Any) -> Any:
        """A `ChainSVM` that predicts the same from the inputs of `linear`, the layer that makes the emissions.

        Parameters
        ----------
        linear : nn.Linear
            From features (p) to tags (K).
        classes : K tags
            Their names, in the order of the states.
        parameters : of `ChainSVM`
            ``forbidden`` and ``bio`` are for its tags' names, and must be given again where this layer has constraints.
        """
        from maxmargin.estimators.chain import ChainSVM

        def array(value: Any) -> Any:
            return None if value is None else value.detach().cpu().double().numpy()

        return ChainSVM.from_weights(
            classes, array(linear.weight), array(self.transitions), array(linear.bias), array(self.start), array(self.end),
            **parameters,
        )  # fmt: skip


def _constraints(n_tags: int, forbidden: Any, bio: Sequence[str] | None) -> tuple[Tensor | None, Tensor | None]:
    """Which transitions (K, K) and which first tags (K,) are forbidden; None if none is."""
    pairs, first = torch.zeros(n_tags, n_tags, dtype=torch.bool), torch.zeros(n_tags, dtype=torch.bool)
    if forbidden is not None and hasattr(forbidden, "shape"):
        pairs = torch.as_tensor(forbidden).cpu().clone()
        if tuple(pairs.shape) != (n_tags, n_tags) or pairs.dtype != torch.bool:
            raise OptionError(f"forbidden must be bool and of shape ({n_tags}, {n_tags}), or a list of pairs of tags.")
    elif forbidden is not None:
        if isinstance(forbidden, str) or not isinstance(forbidden, Iterable):
            raise OptionError(f"forbidden={forbidden!r} is not possible; it must be a list of pairs of tags, or None.")
        for pair in forbidden:
            try:
                before, after = pair
                pairs[before, after] = True
            except (TypeError, ValueError, IndexError):
                raise OptionError(
                    f"forbidden has the entry {pair!r}; expected pairs (tag, tag that may not follow it), numbers from 0 to "
                    f"{n_tags - 1}."
                ) from None
    if bio is not None:
        if len(bio) != n_tags:
            raise OptionError(f"bio has {len(bio)} names; expected one for each of the {n_tags} tags.")
        for name in bio:
            if not (isinstance(name, str) and (name == "O" or (name[:2] in ("B-", "I-") and len(name) > 2))):
                raise OptionError(f'bio has the name {name!r}; expected "O", "B-kind" and "I-kind".')
        first = torch.tensor([name[0] == "I" for name in bio])
        pairs = pairs | (first & torch.tensor([[a[2:] != b[2:] for b in bio] for a in bio]))
    return (pairs if pairs.any() else None), (first if first.any() else None)
