"""``python -m maxmargin``: the command line.

Python puts the current folder first on the path of modules then, where a ``numba.py`` beside the data would be run.
"""

import os
import sys

if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from maxmargin.cli.main import run

sys.exit(run())
