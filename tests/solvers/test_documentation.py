"""What docs/solvers.md says about who trains what is what the solvers declare."""

import re
from pathlib import Path

from maxmargin.solvers import SOLVERS

PAGE = Path(__file__).parents[2] / "docs" / "solvers.md"


def named(begin, end):
    text = PAGE.read_text()
    text = text[text.index(begin) :]
    return set(re.findall(r"`([a-z0-9-]+)`", text[: text.index(end)]))


def test_solvers_for_kernels():
    assert named("Kernels are for", ", low-rank") == {name for name, one in SOLVERS.items() if one.kernels}


def test_solvers_for_problems_in_python():
    able = {name for name, one in SOLVERS.items() if one.requires == ("max-oracle",)}
    assert named("A problem written in Python has only", "([problems of your own]") == able
