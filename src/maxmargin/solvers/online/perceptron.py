"""The averaged structured perceptron.

Collins, Discriminative Training Methods for Hidden Markov Models, EMNLP 2002. A visit of an example predicts its output with the
weights so far and, where the prediction is wrong, adds what the truth's features have more than its own:

    w <- w + weight_m psi_m,      psi_m = phi(truth) - phi(prediction)

The weights reported are the mean over all visits, by the two sums of subgradient.py. There is no regulariser and no objective, so
nothing is certified: `primal` is P at those weights with the C that was given, for comparison with other solvers (the scale of the
weights is the perceptron's own, so it is often large), `dual` is -inf and the certificate is "none". It is computed at the end, and
in between only for a monitor. A pass without a mistake changes nothing any more: the run ends there as STALLED.

With ``loss_augmented=True`` outputs are found with the task loss added: a perceptron with margin.
"""

from __future__ import annotations

from typing import Any

from maxmargin.inference import Engine
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.online.subgradient import N_MISTAKES, SumRun, SumState, check_batch
from maxmargin.solvers.oracles.max_oracle import oracle_of


class Perceptron(Solver):
    """Averaged structured perceptron.

    Parameters
    ----------
    inference : "auto", str or engine
        The max-oracle of factor graphs.
    loss_augmented : bool
        Whether the task loss counts when an output is looked for.
    batch : int
        Examples that are visited at the same weights.
    """

    name = "perceptron"
    requires = ("max-oracle",)
    certificates = ("none",)
    keeps = "a few vectors of weights"
    loss_tables = False
    orders_columns = True
    streams = True
    paper = "Collins 2002"

    def __init__(self, inference: str | Engine = "auto", loss_augmented: bool = False, batch: int = 1) -> None:
        self.inference = inference
        self.loss_augmented = loss_augmented
        self.batch = batch

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        check_batch(self.batch)

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> PerceptronRun:
        """What does the work."""
        return PerceptronRun(self, problem, lam, random_state, threads)


class PerceptronRun(SumRun):
    """One run."""

    step, t0 = 0.0, 0.0

    def __init__(self, solver: Perceptron, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = oracle_of(problem, solver.inference)
        self.asked = oracle_of(problem, solver.inference, loss_augmented=solver.loss_augmented)

    def due(self, now: SumState) -> bool:
        """A check certifies nothing: it is for a monitor, or for an oracle that may fail, when the weights so far are kept."""
        return self.stalled(now) or ((self.watched or not self.compiled) and super().due(now))

    def measure(self, now: SumState, off_schedule: bool) -> dict[str, float]:
        """P at the mean of the weights, which are kept even if the time is over before their value is known."""
        mean = self.average(now)
        now.best = self.flat(mean)
        now.primal = self.value(now, mean, now.best)
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 2
        return {"n_mistakes": float(now.sums[N_MISTAKES])}

    def stalled(self, now: SumState) -> bool:
        """Whether the last pass made no mistake."""
        whole = (now.visits == now.visits[0]).all()
        return bool(now.n_passes > 0 and whole and now.sums[N_MISTAKES] == 0.0)
