"""The cache of compiled code: shared by content, never stale, never from strangers; and the seconds of compilation.

Most tests compile a package of a few lines that has a copy of `maxmargin.jit`, in processes of their own.
"""

import gc
import hashlib
import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numba.core import event
from numba.core.errors import TypingError
from numba.core.types.functions import BaseFunction

import maxmargin.jit
from maxmargin import jit
from maxmargin.jit import sources

SOURCES = {
    "__init__": "import time\n_imported = time.time()\n",
    "ops": """
        from tiny.jit import inner

        @inner
        def step(x):
            return x + 1.0
        """,
    "shapes": """
        from typing import NamedTuple

        class Box(NamedTuple):
            width: float
            height: float
        """,
    "loops": """
        import numpy as np
        from tiny.jit import kernel
        from tiny.ops import step

        @kernel
        def run(x):
            for _ in range(3):
                x = step(x)
            return x

        @kernel
        def width(box):
            return box.width

        @kernel
        def apply(function, x):
            return function(x)

        @kernel
        def third(array):
            return array[2]
        """,
    "other": "NOTHING = 0\n",
}
#: Calls a kernel, and says what it gave, what was compiled, and what was said.
ASK = """
    import json, time
    {before}
    from tiny import jit, loops
    from tiny.shapes import Box
    {setup}
    began, ran = time.perf_counter(), jit.clock()
    found = {call}
    print(json.dumps({{
        "found": found, "hits": sum(loops.{kernel}.stats.cache_hits.values()), "compiled": jit.compile_seconds(),
        "wall": time.perf_counter() - began, "ran": jit.clock() - ran,
    }}))
"""


def write_package(root, **changed):
    folder = root / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (SOURCES | changed).items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    shutil.copytree(Path(maxmargin.jit.__file__).parent, folder / "jit", dirs_exist_ok=True)
    return root


def command(root, kernel="run", call="loops.run(1.0)", setup="", before=""):
    return [
        sys.executable,
        "-c",
        textwrap.dedent(ASK).format(kernel=kernel, call=call, setup=setup, before=before),
    ], str(root)


def environment(root, cache, **more):
    kept = {
        k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "MAXMARGIN_CACHE_DIR", "XDG_CACHE_HOME")
    }
    chosen = {} if cache is None else {"MAXMARGIN_CACHE_DIR": str(cache)}
    return {**kept, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", **chosen, **more}


def ask(root, cache, env=None, **call):
    args, path = command(root, **call)
    done = subprocess.run(args, env=environment(path, cache, **(env or {})), capture_output=True, text=True, check=True)
    return json.loads(done.stdout) | {"said": done.stderr}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A copy of `jit` in this process, of a package in `tmp_path` that tests write to."""
    write_package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("tiny.jit")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tiny"]:
        del sys.modules[name]


# --------------------------------------------------------------------------------------------------- content, not place


def test_two_copies_share_the_cache_and_edits_that_matter_miss_it(tmp_path):
    cache = tmp_path / "cache"
    first = ask(write_package(tmp_path / "a"), cache)
    assert first["found"] == 4.0
    assert first["hits"] == 0
    assert first["compiled"] > 0.0
    second = ask(write_package(tmp_path / "b"), cache)
    assert (second["found"], second["hits"], second["compiled"]) == (4.0, 1, 0.0)
    # A module that the kernel does not import.
    write_package(tmp_path / "a", other="NOTHING = 1\n")
    assert ask(tmp_path / "a", cache)["hits"] == 1
    # An inner function in another file; the size of the file stays the same.
    write_package(tmp_path / "a", ops=SOURCES["ops"].replace("1.0", "2.0"))
    edited = ask(tmp_path / "a", cache)
    assert (edited["found"], edited["hits"]) == (7.0, 0)
    assert ask(tmp_path / "b", cache)["found"] == 4.0


def test_processes_that_compile_at_once_agree(tmp_path):
    cache = tmp_path / "cache"
    args, path = command(write_package(tmp_path / "a"))
    started = [subprocess.Popen(args, env=environment(path, cache), stdout=subprocess.PIPE) for _ in range(2)]
    assert [json.loads(one.communicate()[0])["found"] for one in started] == [4.0, 4.0]
    assert not list(cache.rglob("*.tmp*"))
    assert ask(tmp_path / "a", cache)["hits"] == 1


def test_fields_of_tuples_are_part_of_the_key(tmp_path):
    cache, call = tmp_path / "cache", {"kernel": "width", "call": "loops.width(Box(width=1.0, height=2.0))"}
    assert ask(write_package(tmp_path), cache, **call)["found"] == 1.0
    assert ask(tmp_path, cache, **call)["hits"] == 1
    # loops.py does not import shapes.py, and the types of the fields stay the same.
    turned = SOURCES["shapes"].replace("width", "_").replace("height", "width").replace("_", "height")
    found = ask(write_package(tmp_path, shapes=turned), cache, **call)
    assert (found["found"], found["hits"]) == (1.0, 0)


def test_functions_of_a_user_are_never_stale(tmp_path):
    cache, root = tmp_path / "cache", write_package(tmp_path)
    for times in ("2.0", "3.0"):
        user = "from numba import njit; f = njit(lambda x: x * " + times + ")"
        assert ask(root, cache, kernel="apply", call="loops.apply(f, 5.0)", setup=user)["found"] == 5.0 * float(times)


def test_bounds_checks_have_code_of_their_own(tmp_path):
    cache, root = tmp_path / "cache", write_package(tmp_path)
    call = {"kernel": "third", "call": "loops.third(loops.np.arange(3.0))"}
    assert ask(root, cache, **call)["hits"] == 0
    assert ask(root, cache, **call)["hits"] == 1
    assert ask(root, cache, env={"NUMBA_BOUNDSCHECK": "1"}, **call)["hits"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "from tiny.ops import step",
        "from tiny import ops",
        "from tiny import (  # one (or two)\n    other,\n    ops as o,\n)",
        "from tiny import other, \\\n    ops",
        "from . import ops",
        "from .ops import step",
        "from tiny.deep import thing",
        "from .deep.there import x",
        "import tiny.ops",
        "import os, tiny.ops as o",
        "x = 1; from .ops import step",
        "def f():\n    from tiny.ops import step",
        "def f():\n    import tiny\n    return tiny.ops",
        "f = lambda: __import__('tiny.ops')",
    ],
)
def test_every_form_of_import_counts(tiny, tmp_path, text):
    tiny.sources._IMPORTED = float("inf")
    folder = tmp_path / "tiny"
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("from ..ops import step as thing\n")
    (folder / "deep" / "there.py").write_text("from .. import ops\nx = ops.step\n")
    (folder / "__init__.py").write_text(
        SOURCES["__init__"] + ("from tiny import ops" if "import tiny\n" in text else "")
    )
    (folder / "user.py").write_text(text)

    def stamp():
        for one in (tiny.sources.source_stamp, tiny.sources._source, tiny.sources._file):
            one.cache_clear()
        return tiny.sources.source_stamp("tiny.user")

    before = stamp()
    assert before == stamp()
    (folder / "shapes.py").write_text("another = 1\n")
    assert before == stamp()
    (folder / "ops.py").write_text("step = 2\n")
    assert before != stamp()


def test_sources_that_changed_after_the_import_keep_nothing(tiny, tmp_path):
    assert tiny.sources.source_stamp("tiny.loops") is not None
    tiny.sources.source_stamp.cache_clear()
    tiny.sources._source.cache_clear()
    (tmp_path / "tiny" / "ops.py").write_text(SOURCES["ops"])
    assert tiny.sources.source_stamp("tiny.loops") is None
    assert tiny.sources.source_stamp("numpy.linalg") is None


def test_an_edited_estimator_recompiles_nothing():
    texts = sources._source("maxmargin.estimators.chain")[0]
    assert texts is not None

    def reached(module):
        found, new = set(), {module}
        while new:
            found |= new
            new = {there for here in new for there in sources._source(here)[1]} - found
        return found

    root = Path(jit.__file__).parent.parent
    kernels = [path for path in root.rglob("*.py") if "@kernel" in path.read_text()]
    assert len(kernels) > 20
    for path in kernels:
        names = reached(".".join(("maxmargin", *path.relative_to(root).with_suffix("").parts)))
        assert not [name for name in names if name.startswith(("maxmargin.estimators", "maxmargin.cli"))], path
        assert "maxmargin.jit" in names


def test_versions_of_python_and_numba_share_a_folder(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("MAXMARGIN_CACHE_DIR", str(tmp_path / "cache"))
    loops = importlib.import_module("tiny.loops")
    assert loops.run(1.0) == 4.0
    path = loops.run._cache._path
    here, codegen = path(loops.run.signatures[0], loops.run.targetctx.codegen()), loops.run.targetctx.codegen()
    assert here.exists()
    versions = tiny.cache._versions()
    assert sys.implementation.cache_tag in versions
    monkeypatch.setattr(tiny.cache, "_versions", lambda: ("cpython-999", *versions[1:]))
    assert path(loops.run.signatures[0], codegen) != here


# ---------------------------------------------------------------------------------------------- who may write what is run


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    cache, root = tmp_path / "cache", write_package(tmp_path)
    ask(root, cache)
    assert (cache / "kernels").stat().st_mode & 0o777 == 0o700
    (cache / "kernels").chmod(0o777)
    found = ask(root, cache)
    assert (found["found"], found["hits"]) == (4.0, 0)
    assert found["said"].count("\n") == 1
    assert f"cannot be kept in {cache / 'kernels'} (others may write there)" in found["said"]


def test_files_that_others_may_write_or_that_are_torn_are_not_loaded(tmp_path, tiny):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    cache, bad = tmp_path / "cache", pickle.dumps(Hostile())
    ask(tmp_path, cache)
    (path,) = cache.rglob("tiny.loops.run-*")
    good = path.read_bytes()
    for content, mode in ((good, 0o620), (good, 0o602), (good[:-1], 0o600), (b"", 0o600)):
        path.write_bytes(content)
        path.chmod(mode)
        assert tiny.folder.read(path) is None
    path.write_bytes(hashlib.sha256(bad).digest() + bad)
    path.chmod(0o666)
    found = ask(tmp_path, cache)
    assert (found["found"], found["hits"]) == (4.0, 0)
    assert not (tmp_path / "ran").exists()
    # Compiled again, and written anew.
    assert path.stat().st_mode & 0o777 == 0o600
    assert ask(tmp_path, cache)["hits"] == 1


def test_where_nothing_can_be_written_kernels_are_compiled_and_one_line_says_so(tmp_path):
    root, home = write_package(tmp_path), tmp_path / "home"
    home.write_text("a file, below which no folder can be made")
    found = ask(root, None, env={"HOME": str(home), "LOCALAPPDATA": str(home)})
    assert found["found"] == 4.0
    assert found["said"].count("\n") == 1
    assert "compiled kernels cannot be kept" in found["said"]
    assert "set MAXMARGIN_CACHE_DIR" in found["said"]
    assert ask(root, tmp_path / "cache", env={"HOME": str(home)})["said"] == ""


@pytest.mark.parametrize("name", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_other_variables_that_name_the_folder(tmp_path, name, tiny, monkeypatch):
    if name == "XDG_CACHE_HOME" and sys.platform in ("darwin", "win32"):
        return
    monkeypatch.delenv("MAXMARGIN_CACHE_DIR", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv(name, str(tmp_path / "here"))
    assert tiny.folder._place() == tmp_path / "here" / "tiny" / "kernels"
    monkeypatch.setenv("MAXMARGIN_CACHE_DIR", str(tmp_path / "there"))
    assert tiny.folder._place() == tmp_path / "there" / "kernels"


def test_old_files_are_removed_and_others_stay(tiny, tmp_path):
    names = {"old.kernel": 91, "used.kernel": 89, "1.tmp.kernel": 2, "2.tmp.kernel": 0, "mine.txt": 400, "swept": 2}
    for name, days in names.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - days * 86400,) * 2)
    tiny.folder.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "used.kernel",
        "2.tmp.kernel",
        "mine.txt",
        "swept",
    }


def test_a_file_that_is_read_counts_as_used(tiny, tmp_path):
    path = tmp_path / "x.kernel"
    tiny.folder.write(path, b"content")
    os.utime(path, (time.time() - 80 * 86400,) * 2)
    assert tiny.folder.read(path) == b"content"
    assert time.time() - path.stat().st_mtime < 60


def test_another_numba_falls_back_to_its_own_cache(tmp_path):
    root, numbas = write_package(tmp_path), {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    changed = {"before": "import numba.core.caching as c; del c._Cache"}
    for hits in (0, 1):
        found = ask(root, None, env=numbas, **changed)
        assert (found["found"], found["hits"]) == (4.0, hits)
    assert list((tmp_path / "numba").rglob("*.nbi"))
    # Numba refuses to cache where it finds no place.
    nowhere = {"before": changed["before"] + "; c.CacheImpl._locator_classes.clear()"}
    assert ask(root, None, **nowhere)["found"] == 4.0


# --------------------------------------------------------------------------------------------- seconds and announcements


def test_compilation_is_announced_once_when_it_takes_long(tmp_path):
    cache, root = tmp_path / "cache", write_package(tmp_path)
    impatient = "jit.stopwatch._PATIENCE = 0.05"
    twice = {"call": "loops.run(1.0) + loops.run(1)", "setup": impatient}
    line = "Compiling kernels for this machine; they are kept for next time.\n"
    assert ask(root, cache, **twice)["said"] == line
    assert ask(root, cache, **twice)["said"] == ""
    assert (
        ask(root, tmp_path / "another", call="loops.run(1.0)", setup="jit.stopwatch._PATIENCE = 1000.0")["said"] == ""
    )
    assert ask(root, tmp_path / "third", setup=impatient + "; jit.silence()")["said"] == ""


def test_the_clock_stands_still_while_kernels_are_compiled(tmp_path):
    found = ask(write_package(tmp_path), tmp_path / "cache", setup="loops.third(loops.np.arange(3.0))")
    assert found["compiled"] > 0.5 * found["wall"] > 0.0
    assert found["ran"] < 0.5 * found["wall"]


# --------------------------------------------------------------------------------------------- code beside the data


@pytest.mark.parametrize("module", ["script", "-m"])
def test_no_code_beside_the_data_is_run(tmp_path, module):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("numba", "json", "numpy", "sklearn", "argparse", "scipy", "llvmlite", "rich"):
        (folder / f"{name}.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    (folder / "rows.svm").write_text("".join(f"{k % 2 + 1} 1:{k % 2} 2:1\n" for k in range(8)))
    # What pip writes.
    script = tmp_path / "maxmargin"
    script.write_text("import sys\nfrom maxmargin.cli.main import run\nsys.exit(run())\n")
    start = [sys.executable, str(script)] if module == "script" else [sys.executable, "-m", "maxmargin"]
    root = str(Path(maxmargin.__file__).parents[1])
    for command in (["info"], ["train", "rows.svm", "--quiet"]):
        done = subprocess.run(
            [*start, *command], cwd=folder, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("module", "within"), [("maxmargin.made_up", True), ("of_a_user", False)])
def test_shortcuts_are_in_force_only_while_functions_of_the_package_are_compiled(module, within, request):
    # Other libraries may have changed it.
    request.addfinalizer(partial(gc.set_threshold, *gc.get_threshold()))
    gc.set_threshold(700, 10, 10)
    usual, threshold, seen = BaseFunction.get_call_type, gc.get_threshold(), []

    class Listener(event.Listener):
        def on_start(self, event):
            seen.append((BaseFunction.get_call_type is not usual, gc.get_threshold() != threshold))

        def on_end(self, event):
            pass

    def total(values):
        found = 0.0
        for k in range(len(values)):
            found += values[k] * values[-k] + k
        return found

    def wrong(values):
        return values + "text"

    total.__module__ = wrong.__module__ = module
    with event.install_listener("numba:run_pass", Listener()):
        assert jit.kernel(total)(np.arange(4.0)) == total(np.arange(4.0))
        assert set(seen) == {(within, within)}
        assert (BaseFunction.get_call_type, gc.get_threshold()) == (usual, threshold)
        with pytest.raises(TypingError):
            jit.kernel(wrong)(np.arange(4.0))
    assert (BaseFunction.get_call_type, gc.get_threshold()) == (usual, threshold)


def test_an_array_without_its_count_of_references_is_the_same_memory():
    @jit.kernel
    def add_up(values, out):
        values = jit.unowned(values)
        for row in range(len(values)):
            # A view, of which no reference is counted.
            some = values[row]
            out[0] += some.sum()
            some[0] = -1.0

    values, out = np.arange(6.0).reshape(3, 2), np.zeros(1)
    before = sys.getrefcount(values)
    add_up(values, out)
    assert out[0] == 15.0
    assert values[:, 0].tolist() == [-1.0] * 3
    assert sys.getrefcount(values) == before
