"""Data larger than memory: a packed folder of several times a limit on memory, beside the same data in memory without a limit.

    python benchmarks/packed.py [--limit 512] [--times 4] [--task classes labels] [--repeats 1] [--folder DIR]
    python benchmarks/packed.py --task tagging --copies 28 --data-home DIR

Makes data of `times` times `limit` megabytes on disk, and trains on it to the same certified gap twice, each in a process of
its own: in memory, without a limit; and packed, where RLIMIT_DATA limits private memory (what is allocated: arrays, Python,
Numba and its compiler; maps of files are left out, since the system can give up their pages) to `limit` from the start of the
process. Prints bytes of the data, most private memory that was in use (RssAnon, looked at 20 times a second), passes, seconds a
pass, the gap, and ratios.

classes: 10 classes, 100 dense features, `MultiClassSVM` (soft-bcfw). labels: 4 labels in a tree, 200 of 5,000 sparse features a
row, `MultiLabelSVM` (bcfw, which keeps planes of all examples). tagging: conll2000, so many copies, words packed from a file of
columns, `ChainSVM` with C = 0.1 n and at most 5 passes, as in taggers.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

P, K = 100, 10
COLUMNS, ENTRIES, LABELS = 5000, 200, 4


class Watch(threading.Thread):
    """The most private memory that was in use."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.over = 0, False

    def run(self):
        while not self.over:
            text = Path("/proc/self/status").read_text()
            self.most = max(self.most, int(text.split("RssAnon:")[1].split()[0]) << 10)
            time.sleep(0.05)


def make_classes(folder, size):
    n, rng = int(size / (8 * (P + 1))), np.random.default_rng(0)
    W = rng.normal(size=(P, K))
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float64, (n, P))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int64, (n,))
    for first in range(0, n, 100_000):
        part = rng.normal(size=(min(100_000, n - first), P))
        X[first : first + len(part)] = part
        y[first : first + len(part)] = (part @ W + 3.0 * rng.normal(size=(len(part), K))).argmax(axis=1)
    X.flush()
    y.flush()


def make_labels(folder, size):
    n, rng = int(size / (12 * (ENTRIES + 1))), np.random.default_rng(0)
    W = rng.normal(size=(COLUMNS, LABELS))
    indices = np.lib.format.open_memmap(folder / "indices.npy", "w+", np.int32, (n, ENTRIES))
    data = np.lib.format.open_memmap(folder / "data.npy", "w+", np.float64, (n, ENTRIES))
    Y = np.lib.format.open_memmap(folder / "Y.npy", "w+", np.int8, (n, LABELS))
    step = COLUMNS // ENTRIES
    for first in range(0, n, 50_000):
        m = min(50_000, n - first)
        columns = np.arange(ENTRIES) * step + rng.integers(0, step, (m, ENTRIES))
        values = rng.normal(size=(m, ENTRIES))
        scores = np.einsum("ij,ijk->ik", values, W[columns]) + 3.0 * rng.normal(size=(m, LABELS))
        # Each label is more likely with the one before it.
        scores[:, 1:] += 3.0 * np.sign(scores[:, :-1])
        indices[first : first + m], data[first : first + m], Y[first : first + m] = columns, values, scores > 0


def rows_of(folder, task, mode=None):
    import scipy.sparse as sp

    if task == "classes":
        return np.load(folder / "X.npy", mode), np.load(folder / "y.npy", mode)
    indices, data = np.load(folder / "indices.npy", mode), np.load(folder / "data.npy", mode)
    n = len(indices)
    # With wider numbers here scipy would copy the columns, which are a map of a file, into memory.
    begins = np.arange(n + 1, dtype=indices.dtype) * ENTRIES
    X = sp.csr_array((data.reshape(-1), indices.reshape(-1), begins), shape=(n, COLUMNS))
    return X, np.load(folder / "Y.npy", mode)


def model_of(task, n):
    import maxmargin as mm

    if task == "classes":
        return mm.MultiClassSVM(C=0.001 * n, tol=0.003)
    if task == "labels":
        return mm.MultiLabelSVM(C=0.001 * n, tol=0.01, edges="tree")
    return mm.ChainSVM(C=0.1 * n, tol=0.003, max_passes=5)


def words_of(folder, args):
    from maxmargin import fetch_conll2000
    from maxmargin.formats import write_conll

    sentences, tags = fetch_conll2000(args.data_home)
    write_conll(folder / "one.conll", sentences, tags)
    text = (folder / "one.conll").read_bytes() + b"\n"
    with (folder / "words.conll").open("wb") as stream:
        for _ in range(args.copies):
            stream.write(text)


def one_side(args):
    """Train; prints a line of JSON."""
    if args.side == "packed" and args.task[0] != "tagging":
        resource.setrlimit(resource.RLIMIT_DATA, (args.limit << 20, args.limit << 20))
    folder, (task,) = Path(args.folder), args.task
    from maxmargin.packed import read_packed

    watch = Watch()
    watch.start()
    begun = time.perf_counter()
    if args.side == "packed":
        data = read_packed(folder / "packed")
        X, y = data.X, data.y
    elif task == "tagging":
        from maxmargin.formats import read_conll

        X, y = read_conll(folder / "words.conll")
    else:
        X, y = rows_of(folder, task)
    n = len(y)
    model = model_of(task, n)
    if task == "tagging" and args.side == "memory":
        from maxmargin import TextFeatures

        model.set_params(features=TextFeatures.chunking())
    model.fit(X, y)
    result = model.result_
    watch.over = True
    found = {
        "n": n, "passes": result.n_passes, "pass_seconds": result.seconds / result.n_passes, "gap": result.gap,
        "primal": result.primal, "certificate": result.certificate, "seconds": time.perf_counter() - begun,
        "memory": watch.most, "status": str(result.status), "solver": result.solver,
    }  # fmt: skip
    print(json.dumps(found))


def pack_one(folder, task):
    """Pack in a process of its own, whose private memory is measured; seconds and bytes."""
    program = f"""
import sys, time; sys.path.insert(0, {str(Path(__file__).parent)!r})
import packed
from pathlib import Path
from maxmargin.packed import pack
from maxmargin.cli.main import run
folder, watch = Path({str(folder)!r}), packed.Watch()
watch.start()
begun = time.perf_counter()
if {task!r} == "tagging":
    run(["pack", str(folder / "words.conll"), "-o", str(folder / "packed"), "--features", "chunking"])
else:
    pack(folder / "packed", *packed.rows_of(folder, {task!r}, "r"))
print(time.perf_counter() - begun, watch.most)
"""
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return [float(one) for one in out.splitlines()[-1].split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=["classes", "labels"], choices=["classes", "labels", "tagging"])
    parser.add_argument("--limit", type=int, default=512, help="megabytes of private memory")
    parser.add_argument("--times", type=float, default=4.0, help="size of the data, in units of the limit")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--copies", type=int, default=28)
    parser.add_argument("--data-home")
    parser.add_argument("--folder", help="where the data goes (default: a temporary folder)")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        one_side(args)
        return
    for task in args.task:
        with tempfile.TemporaryDirectory(dir=args.folder) as place:
            folder = Path(place)
            if task == "tagging":
                words_of(folder, args)
            else:
                {"classes": make_classes, "labels": make_labels}[task](folder, args.times * (args.limit << 20))
            seconds, memory = pack_one(folder, task)
            size = sum(entry.stat().st_size for entry in os.scandir(folder / "packed"))
            limit = "none" if task == "tagging" else f"{args.limit} MB"
            print(f"\n{task}: packed {size / 1e6:.0f} MB in {seconds:.1f} s, with {memory / 1e6:.0f} MB; limit {limit}")
            print("| side | examples | solver | private MB | passes | s/pass | seconds | gap | certificate |")
            print("|---|---|---|---|---|---|---|---|---|")
            ratios = []
            for _ in range(args.repeats):
                found = {}
                for side in ("memory", "packed"):
                    command = [
                        sys.executable,
                        __file__,
                        "--side",
                        side,
                        "--task",
                        task,
                        "--folder",
                        place,
                        "--limit",
                        str(args.limit),
                    ]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        raise SystemExit(done.stderr[-3000:])
                    one = found[side] = json.loads(done.stdout.splitlines()[-1])
                    print(
                        f"| {side} | {one['n']} | {one['solver']} | {one['memory'] / 1e6:.0f} | {one['passes']} | "
                        f"{one['pass_seconds']:.2f} | {one['seconds']:.1f} | {one['gap']:.5f} | {one['certificate']} |",
                        flush=True,
                    )
                ratios.append(found["packed"]["pass_seconds"] / found["memory"]["pass_seconds"])
            print(
                f"seconds a pass, packed over memory: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
