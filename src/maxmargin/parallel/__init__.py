"""Work shared out over threads."""

from maxmargin.parallel.threads import n_threads, run_shards

__all__ = ["n_threads", "run_shards"]
