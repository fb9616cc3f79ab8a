"""Mutated files for all readers (`fuzz.py`), a few of each kind: our errors, and no crash, in bounded memory and time."""

import sys

import pytest

from attack import fuzz


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits on memory are those of Linux")
def test_mutated_files():
    counts, faults = fuzz.run(inputs=1000, seed=1)
    assert not faults, "\n".join(faults)
    assert counts["accepted"] + counts["refused"] == 1000
    assert counts["accepted"] > 40
