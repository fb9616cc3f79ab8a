"""Both oracles of a batch of forests on a device: the plane of largest slope of all examples, and their expectations.

Chains with one table of transitions run in fused kernels (chain_kernels.py) where PyTorch has Triton. All else goes level by level
(forests.py), on a GPU as a captured graph: hundreds of small steps are then one launch.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from maxmargin.devices.forests import Forests, Found
from maxmargin.devices.tensor_graphs import TensorGraphs, refusal
from maxmargin.devices.torch_device import TorchDevice
from maxmargin.errors import OptionError

if TYPE_CHECKING:
    from maxmargin.devices.chain_kernels import ChainKernels, Chains


class Answer(NamedTuple):
    """Means over all examples, weighted, and what each has for itself."""

    #: A working vector on the device, and a number.
    psi: Tensor
    ell: float
    #: (M,): hinges, or H_m,T(w).
    values: Tensor


class TensorOracle:
    """The oracles of a problem on a device.

    Parameters
    ----------
    problem : FactorGraphs
    device : TorchDevice
    """

    def __init__(self, problem: Any, device: TorchDevice) -> None:
        why = refusal(problem)
        if why is not None:
            raise OptionError(
                f'This problem cannot be trained on device="{device.name}": {why}. A device takes binary and multi-class problems, '
                'and chains (of order 1) and trees with factors of at most two variables; use device="cpu".'
            )
        self.device = device
        with device.current():
            self.graphs = TensorGraphs(problem, device)
            self.inference: Any = _chains(self.graphs) if device.is_gpu else None
            self.name = "fused chains" if self.inference is not None else "trees by levels"
            if self.inference is None:
                self.inference = CapturedForests(self.graphs) if device.is_gpu else Forests(self.graphs)

    def expect(self, w: Tensor, temperature: float) -> Answer:
        """Expectations at w and a temperature."""
        with self.device.current():
            theta, tables = self.graphs.scores(w)
            found = self.inference.marginals(theta, tables, temperature)
            answer = self._answer(found)
            if answer is None and isinstance(self.inference, FusedChains):
                found = self.inference.cold(theta, tables, temperature)
                answer = self._answer(found)
            return answer or self._refuse(found)

    def maximise(self, w: Tensor) -> Answer:
        """The plane of largest slope at w; hinges are not negative but by rounding."""
        with self.device.current():
            found = self.inference.maximise(*self.graphs.scores(w))
            return self._answer(found) or self._refuse(found)

    def _answer(self, found: Found) -> Answer | None:
        """The means; None where a value is no finite number."""
        psi, ell = self.graphs.statistics(found.share, found.tables)
        number, fine = torch.stack([ell, torch.isfinite(found.values).all().to(ell.dtype)]).tolist()
        return Answer(psi, number, found.values) if fine else None

    def _refuse(self, found: Found) -> NoReturn:
        m = int(torch.nonzero(~torch.isfinite(found.values))[0])
        raise OptionError(f"Example {self.graphs.problem.number_of(m)} has scores that are no finite numbers.")


class FusedChains:
    """Chains in fused kernels."""

    def __init__(self, kernels: ChainKernels) -> None:
        self.kernels = kernels

    def maximise(self, theta: Tensor, tables: Sequence[Tensor]) -> Found:
        """The best labelings."""
        return self._found(self.kernels.maximise(theta, tables[0][0]))

    def marginals(self, theta: Tensor, tables: Sequence[Tensor], temperature: float) -> Found:
        """All marginals at a temperature, unless something underflows."""
        return self._found(self.kernels.marginals(theta, tables[0][0], temperature))

    def cold(self, theta: Tensor, tables: Sequence[Tensor], temperature: float) -> Found:
        """All marginals at any temperature."""
        return self._found(self.kernels.cold(theta, tables[0][0], temperature))

    def _found(self, chains: Chains) -> Found:
        return Found(chains.values, chains.share, [chains.counts[None]])


class CapturedForests:
    """Forests whose steps are captured once and then replayed, at any scores and temperature."""

    def __init__(self, graphs: TensorGraphs) -> None:
        self.forests = Forests(graphs)
        self.temperature = graphs.device.zeros(1)[0]
        self.kept: dict[str, tuple[list[Tensor], Any, Found]] = {}

    def maximise(self, theta: Tensor, tables: Sequence[Tensor]) -> Found:
        """The best labelings."""
        return self._replay("max", lambda one, more: self.forests.maximise(one, more), theta, tables)

    def marginals(self, theta: Tensor, tables: Sequence[Tensor], temperature: float) -> Found:
        """All marginals at a temperature."""
        self.temperature.fill_(temperature)
        return self._replay("sum", lambda one, more: self.forests.marginals(one, more, self.temperature), theta, tables)

    def _replay(
        self, name: str, function: Callable[[Tensor, list[Tensor]], Found], theta: Tensor, tables: Sequence[Tensor]
    ) -> Found:
        if name not in self.kept:
            inputs = [theta.clone(), *(table.clone() for table in tables)]
            # Once beforehand, on a stream of its own, as capturing asks for.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(inputs[0], inputs[1:])
            torch.cuda.current_stream().wait_stream(stream)
            self.kept[name] = inputs, *_capture(lambda: function(inputs[0], inputs[1:]))
        inputs, captured, found = self.kept[name]
        for kept, given in zip(inputs, (theta, *tables), strict=True):
            kept.copy_(given)
        captured.replay()
        # The next replay writes to the same places; what a solver keeps is a copy.
        return found._replace(values=found.values.clone())


def _capture(function: Callable[[], Found]) -> tuple[Any, Found]:
    """A graph of what a function does, and where its answer will be."""
    captured = torch.cuda.CUDAGraph()
    # A graph that is collected as garbage while another is captured would break that one.
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(captured):
            found = function()
    finally:
        gc.enable()
    return captured, found


def _chains(graphs: TensorGraphs) -> FusedChains | None:
    """Fused kernels, if all examples are chains with the same transitions and there is Triton."""
    if len(graphs.pairs) != 1 or not graphs.pairs[0].scoring.is_shared:
        return None
    pairs, starts = graphs.pairs[0], graphs.problem.example_variables
    whole = int(starts[-1]) - graphs.n_examples == len(pairs.child)
    square = pairs.scoring.shape == (graphs.n_states, graphs.n_states)
    if not (whole and square and bool((pairs.child + 1 == pairs.parent).all())):
        return None
    try:
        from maxmargin.devices.chain_kernels import MOST_STATES, ChainKernels
    except ImportError:
        return None
    if graphs.n_states > MOST_STATES:
        return None
    first, weight = graphs.device.put(np.asarray(starts[:-1])), graphs.weight / graphs.n_examples
    return FusedChains(ChainKernels(first, graphs.n_variables, weight, graphs.labels, graphs.n_states))
