"""Structured layers beside pytorch-crf and torch-struct: forward and backward of one batch, in turns.

Needs torch alone; pytorch-crf (torchcrf) and torch-struct take part where they can be imported. Losses of all that compute the same
one must agree to 1e-5.

python benchmarks/torch_layers.py --device cpu --repeats 9
python benchmarks/torch_layers.py --device cuda --repeats 30
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from maxmargin.torch import ChainScores, negative_log_likelihood, structured_hinge


def ours(kind):
    def loss(data):
        scores = ChainScores(data.emissions, data.transitions, data.start, data.end, mask=data.mask)
        if kind == "log":
            return negative_log_likelihood(scores, data.tags)
        return structured_hinge(scores, data.tags, "count")

    return loss


def pytorch_crf(data):
    crf = importlib.import_module("torchcrf").CRF(data.emissions.shape[2], batch_first=True)
    crf = crf.to(data.emissions)
    for mine, theirs in (("start", "start"), ("end", "end"), ("transitions", "")):
        name = f"{theirs}_transitions" if theirs else "transitions"
        delattr(crf, name)
        setattr(crf, name, getattr(data, mine))
    return lambda given: -crf(given.emissions, given.tags, given.mask, reduction="mean")


def torch_struct(data):
    """Log-potentials are (B, T-1, next tag, tag), the scores of positions among them."""
    LinearChainCRF = importlib.import_module("torch_struct").LinearChainCRF

    def loss(given):
        emissions, n = given.emissions, len(given.emissions)
        lengths = given.mask.sum(1)
        first = torch.zeros_like(emissions[0])
        first = torch.cat([given.start[None], first[1:]])
        at = torch.arange(emissions.shape[1], device=emissions.device)
        last = (at == (lengths - 1)[:, None])[..., None] * given.end
        own = emissions + first + last
        potentials = own[:, 1:, :, None] + given.transitions.T
        potentials = torch.cat([potentials[:, :1] + own[:, :1, None, :], potentials[:, 1:]], 1)
        chain = LinearChainCRF(potentials, lengths)
        parts = LinearChainCRF.struct.to_parts(given.tags, emissions.shape[2], lengths=lengths).type_as(emissions)
        return (chain.partition - (potentials * parts).sum((1, 2, 3))).sum() / n

    return loss


class Batch:
    def __init__(self, options):
        shape = (options.batch, options.length, options.tags)
        made = torch.Generator().manual_seed(0)
        dtype = getattr(torch, options.dtype)

        def numbers(*sizes):
            return torch.nn.Parameter(torch.randn(*sizes, generator=made, dtype=dtype).to(options.device))

        self.emissions, self.transitions = numbers(*shape), numbers(options.tags, options.tags)
        self.start, self.end = numbers(options.tags), numbers(options.tags)
        self.tags = torch.randint(options.tags, shape[:2], generator=made).to(options.device)
        lengths = torch.full((options.batch,), options.length)
        if options.ragged:
            lengths[1:] = torch.randint(options.length // 2, options.length + 1, (options.batch - 1,), generator=made)
        self.mask = (torch.arange(options.length) < lengths[:, None]).to(options.device)

    def once(self, loss):
        parameters = (self.emissions, self.transitions, self.start, self.end)
        value = loss(self)
        return value, torch.autograd.grad(value, parameters)


def measure(batch, loss):
    wait = torch.cuda.synchronize if batch.emissions.is_cuda else lambda: None
    wait()
    begin = time.perf_counter()
    batch.once(loss)
    wait()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--tags", type=int, default=32)
    parser.add_argument("--ragged", action="store_true", help="sentences of half the length or more")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batch = Batch(options)
    runs = {"maxmargin log": ours("log"), "maxmargin hinge": ours("hinge")}
    for name, make in (("pytorch-crf", pytorch_crf), ("torch-struct", torch_struct)):
        if name == "torch-struct" and options.device == "cpu":
            print("torch-struct is left out: a batch takes it most of a minute on the processor")
            continue
        try:
            runs[name] = make(batch)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    print(
        f"torch {torch.__version__}, {options.device}, {options.dtype}, {options.batch} x {options.length} x {options.tags}"
    )
    expected, gradients = batch.once(runs["maxmargin log"])
    seconds = {}
    for name, loss in list(runs.items()):
        value, found = batch.once(loss)
        batch.once(loss)
        if "hinge" not in name:
            apart = abs(value.item() / expected.item() - 1)
            slope = max((a - b).abs().max().item() for a, b in zip(gradients, found, strict=True))
            print(f"{name:16} loss {value.item():.6f}, relative difference {apart:.1e}, of gradients {slope:.1e}")
            assert apart < 1e-5, f"{name} computes another loss"
        seconds[name] = []
    for _ in range(options.repeats):
        for name, loss in runs.items():
            seconds[name].append(measure(batch, loss))
    fastest = statistics.median(seconds["maxmargin log"])
    for name, values in seconds.items():
        values.sort()
        middle = statistics.median(values)
        print(
            f"{name:16} median {1e3 * middle:9.3f} ms   from {1e3 * values[0]:9.3f} to {1e3 * values[-1]:9.3f}   "
            f"{middle / fastest:6.1f} times maxmargin log"
        )


if __name__ == "__main__":
    main()
