"""Solvers: one algorithm a file. A solver takes a problem and returns a `Result` with a certificate.

| room | what is there |
|---|---|
| core | the main loop, results, checkpoints, Ctrl-C, sampling: what is common to all solvers |
| oracles | answers for weights: the most violated labelings, expectations, one plane for all examples |
| planes | planes that are kept, sums of them, and the quadratic programme over them |
| frank_wolfe | BCFW, plain BCFW, batch Frank-Wolfe |
| soft | soft agreement constraints: SoftBCFW, Algorithm 1, DLPW |
| cutting_planes | 1-slack, n-slack, the bundle method |
| marginals | excessive gap, exponentiated gradient, extragradient, SMO, L-BFGS |
| online | subgradient, perceptron |
"""

from __future__ import annotations

from maxmargin.solvers.choice import choose_solver
from maxmargin.solvers.core.checkpoint import Checkpoints
from maxmargin.solvers.core.monitor import Callback, Monitor, Report, Silent
from maxmargin.solvers.core.result import CERTIFICATES, Result, Status
from maxmargin.solvers.cutting_planes.bundle import BundleMethod
from maxmargin.solvers.cutting_planes.n_slack import NSlack
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe
from maxmargin.solvers.marginals.excessive_gap import ExcessiveGap
from maxmargin.solvers.marginals.exponentiated_gradient import ExponentiatedGradient
from maxmargin.solvers.marginals.extragradient import Extragradient
from maxmargin.solvers.marginals.lbfgs import LBFGS
from maxmargin.solvers.marginals.smo import SMO
from maxmargin.solvers.online.perceptron import Perceptron
from maxmargin.solvers.online.subgradient import Subgradient
from maxmargin.solvers.path import path
from maxmargin.solvers.registry import SOLVERS, make_solver
from maxmargin.solvers.soft.dlpw import DLPW
from maxmargin.solvers.soft.soft_bcfw import SoftBCFW

__all__ = [
    "BCFW",
    "CERTIFICATES",
    "DLPW",
    "LBFGS",
    "SMO",
    "SOLVERS",
    "BundleMethod",
    "Callback",
    "Checkpoints",
    "ExcessiveGap",
    "ExponentiatedGradient",
    "Extragradient",
    "FrankWolfe",
    "Monitor",
    "NSlack",
    "OneSlack",
    "Perceptron",
    "Report",
    "Result",
    "Silent",
    "SoftBCFW",
    "Status",
    "Subgradient",
    "choose_solver",
    "make_solver",
    "path",
]
