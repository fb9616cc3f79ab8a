"""All experiments, by name."""

from __future__ import annotations

from collections.abc import Sequence

from maxmargin.errors import OptionError, did_you_mean
from maxmargin.experiments.experiment import Experiment
from maxmargin.experiments.papers import cutting, gap, intractable, intractable_inference, soft

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for paper in (soft, intractable_inference, intractable, cutting, gap) for one in paper.EXPERIMENTS
}


def choose(names: Sequence[str], known: dict[str, Experiment] = EXPERIMENTS) -> list[Experiment]:
    """The experiments that these names begin: a whole name, or the name of a paper for all of its own; all without names."""
    chosen: dict[str, Experiment] = {}
    for name in names or ("",):
        found = {key: one for key, one in known.items() if key == name or not name or key.startswith(f"{name}-")}
        if not found:
            hint = did_you_mean(name, known)
            raise OptionError(f"There is no experiment {name!r}.{hint} There are: {', '.join(known)}.")
        chosen |= found
    return list(chosen.values())
