"""The command ``maxmargin``: the parser, and how a command ends.

Conventions
-----------
Results go to the standard output, everything else (progress, sentences about what went wrong) to the standard error.
Each command is a module with `add_arguments` and `run`, which returns the exit code; heavy imports are inside `run`.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence

from maxmargin.cli import bench, compile_ahead, evaluate, info, pack, predict, prune, reproduce, train
from maxmargin.cli.exits import (
    BAD_DATA,
    CANNOT_WRITE,
    CLOSED_PIPE,
    EXIT_CODES,
    INSIDE_ERROR,
    INTERRUPTED,
    USAGE,
    CannotWriteError,
    say,
)
from maxmargin.cli.svm_struct import hmm, multiclass
from maxmargin.errors import MaxMarginError, OptionError, did_you_mean
from maxmargin.signals import STOP_SIGNALS, StopSignal, raise_stopped, remember

_COMMANDS = {
    "train": train,
    "predict": predict,
    "evaluate": evaluate,
    "prune": prune,
    "info": info,
    "pack": pack,
    "compile": compile_ahead,
    "reproduce": reproduce,
    "bench": bench,
    "svm-multiclass": multiclass,
    "svm-hmm": hmm,
}
# Not every platform has all of these.
_DISK_ERRORS = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EIO", "EFBIG")} - {None}


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        args = _parsed(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    # The status in the output says so, and so does the exit code.
    warnings.filterwarnings("ignore", message="Training ended with ")
    try:
        with _stoppable():
            code = int(_COMMANDS[args.command].run(args))
            sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("MAXMARGIN_DEBUG", "0") not in ("", "0"):
            raise
        return _explain(error)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; argparse's complaints, with the nearest name where one is not known."""
    parser = _parser()
    words = sys.argv[1:] if argv is None else list(argv)
    if words and not words[0].startswith("-") and words[0] not in _COMMANDS:
        parser.error(
            f"{words[0]!r} is no command; choose from {', '.join(_COMMANDS)}.{did_you_mean(words[0], _COMMANDS)}"
        )
    args, rest = parser.parse_known_args(words)
    if rest:
        option = rest[0].partition("=")[0]
        known = [f"--{name.replace('_', '-')}" for name in vars(args) if name != "command"]
        hint = did_you_mean(option, known) if option.startswith("--") else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}.{hint}")
    return args


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does: with what was begun cleaned up, and with a sentence."""
    remember(signal.SIGINT)
    ours = [number for number in STOP_SIGNALS if number != signal.SIGINT]
    # Handlers belong to the main thread; and what the parent ignores (nohup) stays ignored.
    if threading.current_thread() is not threading.main_thread():
        ours = []
    ours = [number for number in ours if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, raise_stopped)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _explain(error: BaseException) -> int:
    """One sentence on the standard error, and the exit code."""
    if isinstance(error, StopSignal):
        say(f"Stopped by {error} before there was a model; nothing was written.")
        return 128 + error.number
    if isinstance(error, KeyboardInterrupt):
        say("Interrupted before there was a model; nothing was written.")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader has gone. Python would complain once more when it flushes at exit.
        _close_stdout()
        return CLOSED_PIPE
    if isinstance(error, CannotWriteError):
        say(str(error))
        return CANNOT_WRITE
    if isinstance(error, OptionError):
        say(str(error))
        return USAGE
    if isinstance(error, MaxMarginError):
        say(str(error))
        return BAD_DATA
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        say(f"The output cannot be written: {error.strerror or error}.")
        _close_stdout()
        return CANNOT_WRITE
    if isinstance(error, MemoryError):
        say("There is not enough memory for this.")
        return BAD_DATA
    say(
        f"An error inside maxmargin: {type(error).__name__}: {error}. "
        "Please report it; MAXMARGIN_DEBUG=1 shows where it happened."
    )
    return INSIDE_ERROR


def _close_stdout() -> None:
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


class _Version(argparse.Action):
    """Look the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from maxmargin import __version__

        print(f"maxmargin {__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maxmargin",
        description="Train structured predictors with a margin, and say how far from optimal they are.",
        epilog="Try 'maxmargin train' with nothing after it: a demonstration in a few seconds.\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
    return parser


if __name__ == "__main__":
    sys.exit(run())
