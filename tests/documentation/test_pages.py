"""The code of every page runs, from top to bottom, and so do the examples of docstrings; `blocks` says how."""

import doctest
import importlib
import re

import pytest

from documentation.blocks import ROOT, Page, read_page, run_page

PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What the site's build leaves behind is made of other files.
PAGES = {page.name: page for page in map(read_page, PATHS) if not {"_build", "generated"} & set(page.path.parts)}
SOURCES = sorted((ROOT / "src" / "maxmargin").rglob("*.py"))
MODULES = [
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in SOURCES
    if ">>> " in path.read_text(encoding="utf8")
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A folder of its own for the files that a page writes, and no windows for its pictures."""
    monkeypatch.chdir(tmp_path)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.blocks])
def test_the_code_of_the_page_runs(name):
    page = PAGES[name]
    for module in page.needs:
        pytest.importorskip(module)
    run_page(page)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_has_a_language_and_every_block_that_is_not_run_a_reason(name):
    for block in PAGES[name].blocks:
        where = f"{name}, line {block.line}"
        known = block.language in ("python", "bash", "text", "") or block.language.startswith("{")
        assert known, f"{where}: {block.language!r} is not run; call it text"
        assert not block.reason or len(block.reason.split()) >= 3, f"{where}: say why it is not run"


def test_commands_stand_in_blocks_of_shell():
    """Indented text is not run, so no command may hide in it."""
    for name, page in PAGES.items():
        found = re.findall(
            r"^    (?:maxmargin|pip|python) [^\[\n]*$", page.path.read_text(encoding="utf8"), re.MULTILINE
        )
        assert not found, f"{name}: {found[0]!r} should stand in a block of bash"


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name):
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def test_what_a_page_prints_is_compared(tmp_path):
    path = ROOT / "docs" / "imagined.md"
    right = Page(path, read_page(_written(tmp_path, "```python\nprint('gap 0.5')\n```\n\n```\ngap 0.4\n```\n")).blocks)
    run_page(right)
    wrong = Page(path, read_page(_written(tmp_path, "```python\nprint('gap 0.5')\n```\n\n```\ntime 0.4\n```\n")).blocks)
    with pytest.raises(AssertionError, match="but this is printed"):
        run_page(wrong)


def test_comments_of_a_page_are_understood(tmp_path):
    text = (
        "<!-- needs: nothing -->\n<!-- run first\nx = 1\n-->\n<!-- not run: it would fail -->\n```python\n1 / 0\n```\n"
    )
    page = read_page(_written(tmp_path, text + "```python\nx += 1\n```\n```bash\nls\n```\n"))
    assert page.needs == ["nothing"]
    assert [(block.language, block.line, block.reason) for block in page.blocks[:3]] == [
        ("python", 2, ""),
        ("python", 6, "it would fail"),
        ("python", 9, ""),
    ]
    page.path = ROOT / "docs" / "imagined.md"
    with pytest.raises(AssertionError, match="only maxmargin's commands are run"):
        run_page(page)
    page.blocks.pop()
    assert run_page(page)["x"] == 2


def _written(folder, text):
    path = folder / "page.md"
    path.write_text(text, encoding="utf8")
    return path
