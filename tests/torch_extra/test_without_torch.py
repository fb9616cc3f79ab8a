"""What holds whether or not PyTorch is installed."""

import importlib.util
import subprocess
import sys

import pytest

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Hidden())
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_the_package_imports_no_torch():
    assert run("import sys, maxmargin, maxmargin.estimators; assert 'torch' not in sys.modules").returncode == 0


def test_without_torch_the_error_names_the_extra():
    found = run(HIDE + "import maxmargin.torch")
    assert found.returncode == 1
    assert (
        "ImportError: maxmargin.torch needs PyTorch, which is not installed: pip install 'maxmargin[torch]'."
        in found.stderr
    )


def test_a_device_without_torch_names_the_extra():
    code = "import numpy as np, maxmargin as mm\nmm.BinarySVM(C=1.0, device='cuda').fit(np.eye(4), [0, 1, 0, 1])"
    found = run(HIDE + code)
    assert found.returncode == 1
    expected = "device='cuda' needs PyTorch, which is not installed: pip install 'maxmargin[torch]'."
    assert f"OptionError: {expected}" in found.stderr


def test_the_rest_works_without_torch():
    assert run(HIDE + "from maxmargin import ChainSVM").returncode == 0


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: all other tests of its layers are left out",
)
def test_importing_compiles_nothing():
    """Nor does it import Numba, until a general graph is asked for."""
    assert run("import sys, maxmargin.torch; assert 'numba' not in sys.modules").returncode == 0
