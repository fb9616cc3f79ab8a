"""The site, as far as it can be checked without Sphinx: its links, its reference, its gallery."""

import importlib.util
import os
import re
import runpy
import warnings

import pytest

from documentation.blocks import ROOT
from documentation.public import public_names

DOCS = ROOT / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if not {"_build", "generated"} & set(path.parts)]
OTHERS = [*sorted(ROOT.glob("*.md")), ROOT / "benchmarks" / "README.md"]
#: Made by Sphinx, from other files.
MADE = {"generated/gallery/index"}
GALLERY = sorted((DOCS / "gallery").glob("plot_*.py"))


def text_of(path):
    """A page without its blocks of code and without comments."""
    text = re.sub(r"^```(?!\{).*?^```$", "", path.read_text(encoding="utf8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))


def anchors(path):
    """What links may name after a #: the headings, as GitHub and MyST write them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [*PAGES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_within_the_repository_is_dead(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        if os.path.normpath(file) in MADE:
            continue
        other = (path.parent / file).resolve() if file else path
        assert other.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(other), f"{target}: there is no such heading"


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index"}
    for path in PAGES:
        for block in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", path.read_text(encoding="utf8"), re.DOTALL | re.MULTILINE
        ):
            names = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith(":")]
            listed |= {(path.parent / name) for name in names}
    assert {path.with_suffix("") for path in PAGES} <= listed


def test_the_reference_has_every_public_name():
    found = set(re.findall(r"^   (maxmargin\.[\w.]+)$", (DOCS / "api.md").read_text(encoding="utf8"), re.MULTILINE))
    missing = set(public_names()) - found
    assert not missing
    extra = {name for name in found - set(public_names()) if not name.startswith("maxmargin.torch.")}
    assert not extra


def test_the_table_of_solvers_in_the_guide_has_names_that_exist():
    from maxmargin.solvers import SOLVERS

    text = (DOCS / "choose-a-solver.md").read_text(encoding="utf8")
    table = text[text.index("| your problem") : text.index("## Compare them")]
    named = set(re.findall(r'`"([a-z-]+)"', table)) - {"auto"}
    assert named
    assert named <= set(SOLVERS)


def test_the_workflow_has_the_versions_that_the_package_says_it_supports():
    package = (ROOT / "pyproject.toml").read_text(encoding="utf8")
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf8")
    needed = re.search(r"^dependencies = \[(.*?)^\]", package, re.DOTALL | re.MULTILINE)[1]
    assert re.findall(r'"([\w-]+)>=([\d.]+)"', needed) == re.findall(r"'([\w-]+)==([\d.]+)\.\*'", workflow)
    pythons = re.findall(r"Python :: (3\.\d+)", package)
    assert re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1]) == pythons
    assert f'requires-python = ">={pythons[0]}"' in package


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_pictures_of_the_gallery_are_made(path, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    if "skimage" in path.read_text(encoding="utf8") and importlib.util.find_spec("skimage") is None:
        pytest.skip("scikit-image is not installed")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        runpy.run_path(str(path))
    figures = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    assert figures
    assert all(figure.axes for figure in figures)
