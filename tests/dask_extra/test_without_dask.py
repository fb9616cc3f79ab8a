"""What holds whether or not Dask is installed."""

import importlib.util
import subprocess
import sys

import pytest

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("dask", "distributed"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Hidden())
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_the_package_imports_no_dask():
    code = "import sys, maxmargin, maxmargin.estimators, maxmargin.cli.main; assert 'dask' not in sys.modules"
    assert run(code).returncode == 0


def test_without_dask_the_error_names_the_extra(tmp_path):
    found = run(HIDE + "import maxmargin.dask")
    sentence = "maxmargin.dask needs Dask's distributed, which is not installed: pip install 'maxmargin[dask]'."
    assert found.returncode == 1
    assert f"ImportError: {sentence}" in found.stderr
    (tmp_path / "a.svm").write_text("1 1:0.5\n2 1:-0.5\n")
    arguments = ["maxmargin", "train", str(tmp_path / "a.svm"), "--dask", "local:1", "-C", "1"]
    found = run(HIDE + f"import sys; sys.argv = {arguments!r}\nfrom maxmargin.cli.main import run; sys.exit(run())")
    assert found.returncode == 2
    assert sentence in found.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="distributed is not installed: all other tests of clusters are left out",
)
def test_dask_is_there():
    import maxmargin.dask

    assert maxmargin.dask.train
