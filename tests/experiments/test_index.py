"""docs/papers/index.md: every file and test that it names exists, every option of the shell is one, and no cell is empty."""

import re
from pathlib import Path

import pytest

import maxmargin
from maxmargin import inference, solvers
from maxmargin.cli.main import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers" / "index.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the docs are not beside the tests")


def rows():
    lines = PAGE.read_text(encoding="utf8").splitlines() if PAGE.is_file() else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] != "item"]


def test_there_is_no_empty_cell():
    assert len(rows()) > 50
    for row in rows():
        assert len(row) == 6
        assert all(row), row


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_files_and_tests_exist(row):
    assert (ROOT / "src" / "maxmargin" / row[2].strip("`")).is_file()
    path, _, name = row[3].strip("`").partition("::")
    text = (ROOT / "tests" / path).read_text(encoding="utf8")
    assert not name or f"def {name}(" in text


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_calls_in_python_can_be_made(row):
    """Those of solvers, engines and estimators that stand by themselves; options of solvers are checked when they are used."""
    names = vars(solvers) | vars(inference) | {name: getattr(maxmargin, name) for name in maxmargin.__all__}
    for call in re.findall(r"`([A-Z]\w+\((?:[^()`]|\([^()]*\))*\))`", row[4]):
        if "..." not in call and "(rho)" not in call:
            eval(call, names)


def test_options_of_the_shell_exist(capsys):
    assert run(["train", "--help"]) == 0
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    used = {option for row in rows() for option in re.findall(r"(?<!\S)--[\w-]+", row[5])} - {"--full"}
    assert used <= known
