"""Training that is killed at random moments and resumed, until it is done: are the bits those of a run that nobody disturbed?

    python benchmarks/soak.py --kills 100
    python benchmarks/soak.py --kills 1000 --seconds 600 --solver soft-bcfw

Every run is ``maxmargin train`` with a checkpoint after every pass, in a process of its own (a fork of this one, so that nothing is
imported twice), which gets SIGKILL after a random time. Now and then the disk is full: files above a few kilobytes cannot be
written. After each kill the checkpoint must be whole; after each run that ends, weights, bounds and passes are compared with those
of the undisturbed run. Prints how many runs, kills, resumes, writes that were refused, damaged files and mismatches there were.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.formats import read_model

#: Bytes of a file on a disk that is full.
_FULL = 4096


def data_of(folder):
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 12, 300)
    X = rng.normal(size=(int(lengths.sum()), 12))
    y = np.argmax(X[:, :5] + rng.normal(size=(len(X), 5)), axis=1)
    np.savez(folder / "tags.npz", X=X, y=y, sequence_ptr=np.concatenate([[0], np.cumsum(lengths)]))
    return folder / "tags.npz"


def train(words, full=False):
    """A process that trains; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        if full:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL, _FULL))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        code = run([str(word) for word in words])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def outcome(path):
    model = mm.load(path)
    result = model.result_
    return result.weights, (result.primal, result.dual, result.n_passes, str(result.status))


def whole(path):
    """Whether a checkpoint can be read, if there is one."""
    if not path.exists():
        return True
    try:
        read_model(path)
        return True
    except mm.errors.ModelFileError:
        return False


def soak(args, folder):
    random.seed(args.seed)
    data, state, model = data_of(folder), folder / "run.ck", folder / "model.mm"
    words = [
        "train", data, "-C", 100, "--tol", args.tol, "--solver", args.solver, "--threads", 1, "--quiet", "--max-passes", 10**6,
    ]  # fmt: skip
    # What is compiled, or read from the cache, is there for all.
    with contextlib.redirect_stdout(io.StringIO()):
        run([str(word) for word in words])
    clock = time.monotonic()
    plain = [*words, "-o", folder / "straight.mm", "--checkpoint", state, "--checkpoint-passes", 1]
    assert os.waitstatus_to_exitcode(os.waitpid(train(plain), 0)[1]) == 0
    straight = time.monotonic() - clock
    weights, bounds = outcome(folder / "straight.mm")
    print(f"undisturbed: {bounds[3]} after {bounds[2]} passes, {straight:.2f} s", flush=True)
    count = dict.fromkeys(("runs", "kills", "resumes", "full disks", "damaged", "mismatches", "failures"), 0)
    begun = time.monotonic()
    while count["kills"] < args.kills and time.monotonic() - begun < args.seconds:
        for one in (state, Path(f"{state}.previous"), model):
            one.unlink(missing_ok=True)
        count["runs"] += 1
        while True:
            count["resumes"] += state.exists()
            full = random.random() < 0.1
            count["full disks"] += full
            saved = ["--checkpoint", state, "--checkpoint-passes", 1] + ([] if full else ["-o", model])
            child = train([*words, *saved], full)
            # The moment of the kill; at times after the end.
            time.sleep(random.random() * straight * 0.7)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            count["kills"] += ended == -signal.SIGKILL
            count["damaged"] += not whole(state)
            if ended == 0 and not full:
                found, said = outcome(model)
                count["mismatches"] += not (np.array_equal(found, weights) and said == bounds)
                break
            if ended not in (0, -signal.SIGKILL):
                count["failures"] += 1
                break
    left = [one.name for one in folder.iterdir() if one.name.endswith(".tmp")]
    print(", ".join(f"{number} {name}" for name, number in count.items()), flush=True)
    print(f"{len(left)} temporary files of killed processes left, which the next write a minute later removes")
    return 0 if not (count["mismatches"] or count["damaged"] or count["failures"]) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--solver", default="bcfw")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        sys.exit(soak(given, Path(made)))
