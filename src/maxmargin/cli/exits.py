"""How commands end: exit codes, sentences on the standard error, and output that cannot be written."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from maxmargin.errors import MaxMarginError, OptionError

DONE, NOT_CONVERGED, USAGE, BAD_DATA, CANNOT_WRITE = range(5)
# As other programs use them: sysexits.h for the first two, 128 + the signal's number for the others.
INSIDE_ERROR, PROCESS_LOST, INTERRUPTED, CLOSED_PIPE = 70, 71, 130, 141

EXIT_CODES = """\
exit codes:
  0    done; a trained model has converged to the tolerance, or was stopped by --patience
  1    trained, but not converged to the tolerance (the model is saved)
  2    wrong usage: an option that does not exist or cannot be
  3    bad data, or a bad model file
  4    the output cannot be written
  70   an error inside maxmargin
  71   a process that 'maxmargin compile' had started was killed
  130  interrupted (the best certified model so far is saved); 143 by SIGTERM, 129 by SIGHUP"""


class CannotWriteError(MaxMarginError):
    """The output cannot be written."""


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever goes wrong while this path is written, or checked, into `CannotWriteError`."""
    try:
        yield
    except OptionError as error:
        raise CannotWriteError(str(error)) from error
    except OSError as error:
        raise CannotWriteError(f"The file {os.fspath(path)} cannot be written: {error.strerror or error}.") from error


def check_output(path: str | None) -> None:
    """Refuse an output path that cannot be written, before any work is done."""
    if path is not None:
        from maxmargin.formats.atomic import check_writable

        with writing(path):
            check_writable(path)


def say(sentence: str) -> None:
    """A sentence on the standard error."""
    with contextlib.suppress(OSError, ValueError):
        print(f"maxmargin: {sentence}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """One JSON object on the standard output; numbers that JSON lacks become null."""
    print(to_json(value))


def to_json(value: Any) -> str:
    """JSON text of plain values and NumPy's scalars and arrays."""
    from maxmargin.formats.plain_json import plain

    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
