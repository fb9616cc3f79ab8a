"""Shards cover all examples once, in order of number, whatever the threads."""

import os

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.parallel import n_threads, run_shards


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n_examples", [1, 7, 16, 1000])
def test_every_example_is_in_one_shard(threads, n_examples):
    seen = np.zeros(n_examples, int)

    def visit(begin, end):
        seen[begin:end] += 1

    run_shards(visit, n_examples, threads)
    assert (seen == 1).all()


def test_an_error_in_a_shard_is_raised():
    def fail(begin, end):
        raise MemoryError(f"{begin}")

    for threads in (1, 2):
        with pytest.raises(MemoryError):
            run_shards(fail, 100, threads)


def test_number_of_threads():
    cores = os.cpu_count() or 1
    assert n_threads(None) == 1
    assert n_threads(3) == 3
    assert n_threads(-1) == cores
    assert n_threads(-1000) == 1
    for wrong in (0, 1.5, "two", True):
        with pytest.raises(OptionError, match="n_jobs="):
            n_threads(wrong)
