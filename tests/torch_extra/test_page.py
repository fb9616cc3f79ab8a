"""The code of docs/torch.md runs from top to bottom, and pytorch-crf's call and ours agree there where it is installed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_runs(capsys):
    page = (ROOT / "docs" / "torch.md").read_text(encoding="utf8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    space = {}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), space)
    printed = capsys.readouterr().out
    assert "CONVERGED" in printed
    if space["CRF"] is None:
        pytest.skip("pytorch-crf is not installed: the rest of the page ran")
