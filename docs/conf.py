"""The site: ``sphinx-build -W --keep-going docs docs/_build/html``.

Pages are the Markdown files beside this one. What is made from other files lies in ``docs/generated``: the reference of every
public name, the gallery, and copies of pages of the repository (CONTRIBUTING, CHANGELOG, the README of the benchmarks and others).
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "src"))

import tomllib  # noqa: E402

release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]["version"]

project = "maxmargin"
author = copyright = "The maxmargin developers"
version = release
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery", "sg_execution_times.rst", "**/README.txt", "generated/gallery/*.ipynb"]
templates_path = ["_templates"]
highlight_language = "none"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# The layers for PyTorch are documented where it is not installed, too.
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "maxmargin"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "logo": {"text": "maxmargin"},
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "tutorial": [], "faq": []}

sphinx_gallery_conf = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["generated/gallery"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "min_reported_time": 10_000,
    "remove_config_comments": True,
}

warnings.filterwarnings("ignore", message="Compiling kernels")
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: Pages of the repository that lie outside this folder, and where their links lead on the site.
COPIES = {
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "SECURITY.md": "security.md",
    ROOT / "CODE_OF_CONDUCT.md": "conduct.md",
    ROOT / "benchmarks" / "README.md": "benchmarks.md",
}


def copied(path: Path) -> str:
    """The text of a page outside this folder, with links as they are from ``docs/generated``."""

    def moved(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target or not target:
            return match[0]
        file = (path.parent / target).resolve()
        if file in COPIES:
            return f"]({COPIES[file]}{anchor})"
        return f"]({os.path.relpath(file, HERE / 'generated')}{anchor})"

    return re.sub(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", moved, path.read_text(encoding="utf8"))


def copy_pages() -> None:
    """Write the copies, if they changed."""
    (HERE / "generated").mkdir(exist_ok=True)
    for path, name in COPIES.items():
        target, text = HERE / "generated" / name, copied(path)
        if not target.exists() or target.read_text(encoding="utf8") != text:
            target.write_text(text, encoding="utf8")


def lead_to_copies(app: Any, name: str, source: list[str]) -> None:
    """Links of a page to files outside this folder lead to their copies."""
    folder = (HERE / f"{name}.md").parent
    for path, copy in COPIES.items():
        theirs, ours = (os.path.relpath(one, folder) for one in (path, HERE / "generated" / copy))
        source[0] = source[0].replace(f"]({theirs})", f"]({ours})")


def leave_out(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Members that are scikit-learn's or Python's own are documented there."""
    home = getattr(member, "__module__", None) or getattr(getattr(member, "fget", None), "__module__", None) or ""
    return True if what in ("class", "exception") and callable(member) and not home.startswith("maxmargin") else None


def setup(app: Any) -> None:
    """What Sphinx asks of this file."""
    copy_pages()
    app.connect("source-read", lead_to_copies)
    app.connect("autodoc-skip-member", leave_out)
