"""What every solver returns: the weights, how good they are, and for which problem that was checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Status(StrEnum):
    """Why a solver stopped."""

    CONVERGED = "CONVERGED"
    MAX_PASSES = "MAX_PASSES"
    TIME_LIMIT = "TIME_LIMIT"
    INTERRUPTED = "INTERRUPTED"
    STALLED = "STALLED"
    EARLY_STOPPED = "EARLY_STOPPED"


#: What a certificate is for: the problem whose optimum lies between `dual` and `primal`.
CERTIFICATES = {
    "exact": "the maximum over labelings is exact",
    "relaxed": "labelings range over the local marginal polytope (the LP relaxation)",
    "soft": "the LP relaxation with soft agreement of strength rho",
    "none": "no bound was checked",
}


@dataclass(repr=False)
class Result:
    """The outcome of training.

    Attributes
    ----------
    status : Status
        CONVERGED only if the certified gap is at most `tol`.
    weights : float array (d,)
        The flat weights of the best certified primal value.
    primal, dual, gap : float
        P(w), a lower bound of the optimum, and their difference, per example, in units of the task loss.
    certificate : str
        "exact", "relaxed", "soft" or "none": the problem that the gap is about.
    n_passes : int
        Passes over the data.
    n_oracle_calls : int
        Maximisations: of a variable or factor block here, of an example elsewhere.
    seconds : float
        Time of the algorithm, without monitoring and without compiling kernels.
    history : dict of float arrays
        One entry per check: ``n_passes, seconds, primal, dual, gap, monitor_seconds`` and more; ready for a data frame.
    solver, options : str, dict
        What ran, and why.
    message : str
        What went wrong on the way, in sentences: why a run ended early, or that its checkpoint is not current; "" for nothing.
    state : object
        The solver's state, to go on from: pass it back as ``state=``.
    compile_seconds : float
        Time that this run waited for kernels to be compiled, which counts for no limit.
    """

    status: Status
    weights: NDArray[np.float64]
    primal: float
    dual: float
    gap: float
    certificate: str
    n_passes: int
    n_oracle_calls: int
    seconds: float
    history: dict[str, NDArray[Any]] = field(repr=False)
    solver: str = ""
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    message: str = ""
    state: Any = field(default=None, repr=False, compare=False)
    compile_seconds: float = field(default=0.0, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: all but the solver's state, which may be many times as large as the weights."""
        return {**self.__dict__, "state": None}

    def __repr__(self) -> str:
        return f"Result({self.solver}, {self.summary()})"

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        rows = {
            "status": str(self.status), "certificate": f"{self.certificate}: {CERTIFICATES[self.certificate]}",
            "primal": f"{self.primal:.6g}", "dual": f"{self.dual:.6g}", "gap": f"{self.gap:.3g}",
            "passes": str(self.n_passes), "oracle calls": str(self.n_oracle_calls),
            "seconds": f"{self.seconds:.2f}, and {self.compile_seconds:.1f} of compilation", "solver": self.solver,
        }  # fmt: skip
        if "C" in self.options:
            rows["C"] = f"{self.options['C']:g}, {self.options.get('C_reason', 'as asked')}"
        if self.message:
            rows["message"] = self.message
        cells = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>"

    def summary(self) -> str:
        """One sentence about the outcome, and what went wrong on the way."""
        reason = self.options.get("C_reason", "as asked")
        return (
            f"{self.status}: {self.certificate} gap {self.gap:.3g} (primal {self.primal:.6g}, dual {self.dual:.6g}) "
            f"after {self.n_passes} passes, {self.seconds:.2f} s"
            + (f". C = {self.options['C']:g}, {reason}" if reason != "as asked" else "")
            + (f". {self.message}" if self.message else "")
        )
