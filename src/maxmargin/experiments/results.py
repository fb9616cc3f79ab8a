"""The file of results: a line of JSON for each setting that was run, so that an interrupted run goes on where it was.

    {"experiment": "...", "setting": {...}, "figures": {...}, "seconds": 1.2, "version": "0.1.0"}

A line is written whole and brought to the disk before the next setting is counted as done. A process that is killed while it
writes leaves the beginning of a line at the end of the file, which the next run cuts off. Any other line that cannot be read is an
error that names it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from maxmargin.errors import DataError, OptionError
from maxmargin.experiments.experiment import Row, Setting
from maxmargin.formats.plain_json import plain

_NAMES = ("experiment", "setting", "figures", "seconds", "version")


class ResultsFile:
    """Results that are kept in a file.

    Parameters
    ----------
    path : path-like
        The file; it need not exist.
    version : str
        The version of the library. Results of another one are refused.
    """

    def __init__(self, path: str | os.PathLike[str], version: str) -> None:
        self.path = Path(path)
        self.version = version
        self._rows: dict[tuple[str, str], Row] = {}
        if self.path.exists() and not self.path.is_file():
            raise OptionError(f"The results cannot be kept in {self.path}: it is not a file.")
        try:
            with open(self.path, "ab+") as stream:
                stream.seek(0)
                content = stream.read()
                whole = content.rfind(b"\n") + 1
                if whole < len(content):
                    stream.truncate(whole)
        except OSError as error:
            raise OptionError(f"The results cannot be kept in {self.path}: {error.strerror or error}.") from error
        for number, line in enumerate(content[:whole].splitlines(), 1):
            self._read(number, line)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: tuple[str, Setting]) -> bool:
        return (key[0], _key(key[1])) in self._rows

    def rows(self, experiment: str, settings: list[Setting]) -> list[Row]:
        """Those of these settings that were run, in their order."""
        keys = ((experiment, _key(setting)) for setting in settings)
        return [self._rows[key] for key in keys if key in self._rows]

    def add(self, experiment: str, row: Row) -> None:
        """Keep a result; it is on the disk when this returns."""
        row = Row(row.setting, plain(row.figures), round(row.seconds, 3))
        entry = dict(zip(_NAMES, (experiment, row.setting, row.figures, row.seconds, self.version), strict=True))
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        try:
            # Without a buffer: after an error half a line may be there, and it is taken back.
            with open(self.path, "ab", buffering=0) as stream:
                before = stream.tell()
                try:
                    written = stream.write(line)
                    if written != len(line):
                        raise OSError(None, "the disk is full")
                    os.fsync(stream.fileno())
                except OSError:
                    stream.truncate(before)
                    raise
        except OSError as error:
            raise OptionError(
                f"The results cannot be kept in {self.path}: {error.strerror or error}. "
                f"The {len(self._rows)} settings that were finished before are in it."
            ) from error
        self._rows[experiment, _key(row.setting)] = row

    def _read(self, number: int, line: bytes) -> None:
        try:
            entry = json.loads(line)
            experiment, setting, figures, seconds, version = (entry[name] for name in _NAMES)
            if not (isinstance(setting, dict) and isinstance(figures, dict) and isinstance(experiment, str)):
                raise TypeError
            row = Row(setting, figures, float(seconds))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise DataError(
                f"{self.path}: line {number} is not a result; remove the line, or choose another directory."
            ) from None
        if version != self.version:
            raise DataError(
                f"{self.path}: line {number} is a result of version {version}, and this is {self.version}; "
                "choose another directory, or remove the file."
            )
        self._rows[experiment, _key(setting)] = row


def _key(setting: Setting) -> str:
    return json.dumps(setting, sort_keys=True)
