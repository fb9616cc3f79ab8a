"""Shards cover all examples once, in order of number, whatever the threads."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.parallel import n_threads, run_shards
from maxmargin.parallel.lines import zeros_in_lines
from maxmargin.parallel.threads import map_rows, map_shards, n_cores


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n_examples", [1, 7, 16, 1000])
def test_every_example_is_in_one_shard(threads, n_examples):
    seen = np.zeros(n_examples, int)

    def visit(begin, end):
        seen[begin:end] += 1

    run_shards(visit, n_examples, threads)
    assert (seen == 1).all()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (10, 3), (1000, 700)])
def test_ranges_of_rows_do_not_depend_on_the_threads(shape):
    ranges = [map_rows(lambda begin, end: (begin, end), shape, threads) for threads in (1, 3)]
    assert ranges[0] == ranges[1]
    assert [k for begin, end in ranges[0] for k in range(begin, end)] == list(range(shape[0]))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot give a process some of its cores")
def test_all_cores_are_those_that_the_process_may_use():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from maxmargin.parallel import n_threads; print(n_threads(-1))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_an_error_in_a_shard_is_raised():
    def fail(begin, end):
        raise MemoryError(f"{begin}")

    for threads in (1, 2):
        with pytest.raises(MemoryError):
            run_shards(fail, 100, threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_answers_are_in_the_order_of_the_shards(threads):
    shards = [(k, k + 2) for k in range(0, 40, 2)]
    assert map_shards(lambda begin, end: (begin, end), shards, threads) == shards


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_error_of_the_first_shard_is_raised_and_the_rest_is_left(threads):
    begun = []

    def fail(begin, end):
        begun.append(begin)
        # The later of the two that fail may well be the first to do so.
        time.sleep(0.05 if begin == 1 else 0.0 if begin == 2 else 0.2)
        if begin in (1, 2):
            raise MemoryError(f"{begin}")

    with pytest.raises(MemoryError, match="1"):
        map_shards(fail, [(k, k + 1) for k in range(1000)], threads)
    assert len(begun) < 100


def test_number_of_threads():
    cores = n_cores()
    assert n_threads(None) == 1
    assert n_threads(3) == 3
    assert n_threads(-1) == cores
    assert n_threads(-1000) == 1
    for wrong in (0, 1.5, "two", True):
        with pytest.raises(OptionError, match="n_jobs="):
            n_threads(wrong)


def test_arrays_in_lines_begin_at_a_line():
    for shape, dtype in (((3, 8), np.float64), ((1,), np.int64), ((5, 7), np.float64), ((0, 4), np.float64)):
        made = zeros_in_lines(shape, dtype)
        assert made.shape == shape
        assert made.dtype == dtype
        assert not made.any()
        assert made.size == 0 or made.ctypes.data % 64 == 0
