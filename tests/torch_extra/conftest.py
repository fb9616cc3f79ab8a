"""The extra `torch`: its tests are skipped, with a reason, where PyTorch is not installed.

The folder is not called `torch`: `tests` is on the path of imports, and a folder of that name would pass for
PyTorch where it is missing.
"""

from __future__ import annotations

import importlib.util

import pytest

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = [
        "test_chains.py",
        "test_devices.py",
        "test_trees.py",
        "test_graphs.py",
        "test_layers.py",
        "test_bad_input.py",
        "test_workers.py",
    ]


@pytest.fixture(autouse=True)
def one_thread():
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
