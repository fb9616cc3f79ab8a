"""Who may import whom: rooms come in layers, and nothing imports from a layer above its own.

A test of our own instead of import-linter: it also refuses private names and cycles of modules, counts imports inside functions,
and takes fifty lines.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import maxmargin

ROOT = Path(maxmargin.__file__).parent

#: From the bottom up; rooms of one layer do not know each other.
LAYERS = [
    ("errors", "signals"),
    ("scratch",),
    ("jit", "sparse"),
    ("parallel",),
    ("formats", "problems"),
    ("devices", "features", "inference"),
    ("packed",),
    ("solvers.core", "solvers.planes"),
    ("solvers.oracles",),
    ("solvers.frank_wolfe", "solvers.soft", "solvers.cutting_planes", "solvers.marginals", "solvers.online"),
    ("solvers",),
    ("measures", "parsing"),
    ("datasets", "reporting"),
    ("estimators",),
    ("dask", "experiments", "torch"),
    ("cli",),
]
#: What stands beside the layers: the public names, and the program.
OUTSIDE = ("", "__main__")


def room_of(module: str) -> str:
    """The longest room that a module (without the package's name) is in."""
    rooms = [room for layer in LAYERS for room in layer]
    parts = module.split(".")
    for k in range(len(parts), 0, -1):
        if ".".join(parts[:k]) in rooms:
            return ".".join(parts[:k])
    return module


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix("__init__").removesuffix(".")] = path
    return found


MODULES = modules()


def imports(path: Path) -> list[tuple[str, list[str]]]:
    """Modules of the package that a file imports, anywhere in it, and the names that it takes from them."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "maxmargin":
            source = (node.module or "").removeprefix("maxmargin").removeprefix(".")
            for alias in node.names:
                inside = f"{source}.{alias.name}".removeprefix(".")
                found.append((inside, []) if inside in MODULES else (source, [alias.name]))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "maxmargin"]
            found += [(name.removeprefix("maxmargin").removeprefix("."), []) for name in names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            # `jit` alone: its tests copy it into another package.
            assert (node.level, path.parent) == (1, ROOT / "jit"), f"{path}: a relative import"
            found.append((f"jit.{node.module}", [alias.name for alias in node.names]))
    return found


def test_every_room_has_a_layer():
    rooms = {room for layer in LAYERS for room in layer}
    assert {room_of(name) for name in MODULES} - set(OUTSIDE) == rooms


@pytest.mark.parametrize("module", sorted(set(MODULES) - set(OUTSIDE)))
def test_imports_go_down(module):
    height = {room: level for level, layer in enumerate(LAYERS) for room in layer}
    here = room_of(module)
    for source, names in imports(MODULES[module]):
        if source in OUTSIDE:
            # The version, which is the package's own.
            assert set(names) <= {"__version__"} or here == "cli", f"{module} imports the whole package"
            continue
        there = room_of(source)
        fine = there == here or height[there] < height[here]
        assert fine, f"{module} imports {source}, which is not below it"
        private = [name for name in names if name.startswith("_")]
        assert not private, f"{module} imports private names of {source}: {private}"


def test_no_modules_import_each_other():
    graph = {name: {source for source, _ in imports(path)} & set(MODULES) for name, path in MODULES.items()}
    graph.pop("")
    # A module is taken away when nothing is left that it imports.
    while graph:
        free = [name for name, sources in graph.items() if not sources & set(graph) - {name}]
        assert free, f"these modules import each other: {sorted(graph)}"
        for name in free:
            del graph[name]
