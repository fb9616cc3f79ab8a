"""Training on a Dask cluster: examples stay where they lie, and weights and planes travel.

Needs the extra ``dask``; nothing else in the package imports it.
"""

from __future__ import annotations

try:
    import distributed as _distributed  # noqa: F401
except ImportError as error:
    raise ImportError(
        "maxmargin.dask needs Dask's distributed, which is not installed: pip install 'maxmargin[dask]'."
    ) from error

from maxmargin.dask.cluster import ClusterError, OnCluster, connected, train
from maxmargin.dask.estimators import DaskBinarySVM, DaskChainSVM, DaskMultiClassSVM, DaskMultiLabelSVM

__all__ = [
    "ClusterError",
    "DaskBinarySVM",
    "DaskChainSVM",
    "DaskMultiClassSVM",
    "DaskMultiLabelSVM",
    "OnCluster",
    "connected",
    "train",
]
