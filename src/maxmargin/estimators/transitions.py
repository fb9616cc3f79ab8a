"""Hard constraints of chains: transitions and first tags that are forbidden, by a list of pairs or by the rules of BIO tags."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError


def constraints(estimator: Any, classes: NDArray[Any]) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Which transitions (K, K) and which first tags (K,) are forbidden; None if none is."""
    forbidden = forbidden_transitions(estimator.forbidden, classes)
    if not estimator.bio:
        return forbidden, None
    inside, before = _bio(classes)
    return (before if forbidden is None else forbidden | before), inside


def _bio(classes: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tags (K,) are I, and which (K,) may not come before which (K,)."""
    for tag in classes.tolist():
        if not (isinstance(tag, str) and (tag == "O" or (tag[:2] in ("B-", "I-") and len(tag) > 2))):
            raise DataError(f'bio=True, but y has the tag {tag!r}; expected "O", "B-kind" and "I-kind".')
    kind = np.array([tag[2:] for tag in classes.tolist()])
    inside = np.array([tag[0] == "I" for tag in classes.tolist()])
    return inside, inside & (kind[:, None] != kind)


def forbidden_transitions(pairs: Any, classes: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Which transitions (K, K) are forbidden; None if none is."""
    if pairs is None:
        return None
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise OptionError(f"forbidden={pairs!r} is not possible; it must be a list of pairs of tags, or None.")
    state = {tag: k for k, tag in enumerate(classes.tolist())}
    mask = np.zeros((len(state), len(state)), bool)
    for pair in pairs:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise OptionError(f"forbidden has the entry {pair!r}; expected pairs (tag, tag that may not follow it).")
        for tag in pair:
            if not isinstance(tag, Hashable) or tag not in state:
                raise OptionError(f"forbidden names the tag {tag!r}, which is not in y; the tags are {list(state)}.")
        mask[state[pair[0]], state[pair[1]]] = True
    if mask.all():
        raise OptionError(
            "forbidden lists every transition between the tags, so that no sequence of two would be allowed."
        )
    return mask if mask.any() else None


def check_constraints(
    states: NDArray[np.int32],
    lengths: NDArray[np.int64],
    forbidden: NDArray[np.bool_] | None,
    first: NDArray[np.bool_] | None,
    classes: NDArray[Any],
) -> None:
    """Refuse training sequences that have what is forbidden, naming the first of them."""
    starts = np.cumsum(lengths) - lengths
    known = states >= 0
    if first is not None and (known & first[states])[starts].any():
        m = int(np.flatnonzero((known & first[states])[starts])[0])
        tag = classes[states[starts[m]]]
        raise DataError(f"Sequence {m} has {str(tag)!r} at position 0, where no tag before it allows it (bio=True).")
    if forbidden is None:
        return
    inside = np.ones(len(states), bool)
    inside[starts] = False
    wrong = np.flatnonzero(inside[1:] & known[:-1] & known[1:] & forbidden[states[:-1], states[1:]])
    if len(wrong):
        at = int(wrong[0])
        m = int(np.searchsorted(starts, at, side="right") - 1)
        before, after = classes[states[at : at + 2]].tolist()
        raise DataError(
            f"Sequence {m} goes from {before!r} at position {at - starts[m]} to {after!r}, a transition that is forbidden."
        )


def check_possible(
    lengths: NDArray[np.int64], forbidden: NDArray[np.bool_] | None, first: NDArray[np.bool_] | None
) -> None:
    """Refuse sequences for which the constraints leave no tags at all."""
    if forbidden is None:
        return
    # The tags that can stand at position t. A way of K steps meets a tag twice, so it can go on for ever.
    reachable: NDArray[np.bool_] = np.ones(len(forbidden), bool) if first is None else ~first
    for t in range(1, len(forbidden) + 1):
        reachable = np.asarray(~forbidden[reachable].all(axis=0))
        if not reachable.any():
            if (lengths > t).any():
                m = int(np.flatnonzero(lengths > t)[0])
                raise DataError(
                    f"Sequence {m} has {lengths[m]} positions, but the forbidden transitions allow no tags for more "
                    f"than {t}."
                )
            return
