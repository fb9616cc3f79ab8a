"""Files appear whole or not at all, and unwritable places are found beforehand."""

import os
import stat
import subprocess
import sys

import pytest

from maxmargin.errors import OptionError
from maxmargin.formats import atomic
from maxmargin.formats.atomic import atomic_write, check_writable


def test_new_file_and_replacement(tmp_path):
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        with atomic_write(path) as stream:
            stream.write(content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_permissions(tmp_path):
    path = tmp_path / "file"
    old = os.umask(0o027)
    try:
        with atomic_write(path) as stream:
            stream.write(b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    with atomic_write(path) as stream:
        stream.write(b"y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_old_file_survives_a_failure_midway(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with atomic_write(path) as stream:
            stream.write(b"half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_old_file_survives_a_failing_disk(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"), atomic_write(path) as stream:
        stream.write(b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "file")
    with atomic_write(link) as stream:
        stream.write(b"x")
    assert link.is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"x"


def test_long_names(tmp_path):
    path = tmp_path / ("n" * 255)
    with atomic_write(path) as stream:
        stream.write(b"x")
    assert path.read_bytes() == b"x"


def test_check_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old").write_bytes(b"old")
    check_writable(tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old"]


def test_unwritable_places(tmp_path, monkeypatch):
    with pytest.raises(OptionError, match=r"model.mm cannot be written: the directory .*missing does not exist"):
        check_writable(tmp_path / "missing" / "model.mm")
    with pytest.raises(OptionError, match=r"cannot be written: it is a directory"):
        check_writable(tmp_path)
    read_only = tmp_path / "fixed.mm"
    read_only.write_bytes(b"old")
    read_only.chmod(0o444)
    with pytest.raises(OptionError, match=r"fixed.mm cannot be written: it exists and is read-only"):
        check_writable(read_only)
    with pytest.raises(OptionError, match="read-only"), atomic_write(read_only):
        pytest.fail("the block must not run")

    def refuse(target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic, "_create_beside", refuse)
    with pytest.raises(OptionError, match=r"refuses new files \(Permission denied\)"):
        check_writable(tmp_path / "new.mm")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OptionError, match="is not a regular file"):
        check_writable(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "a\ud800b"])
def test_names_that_cannot_be(tmp_path, name):
    """Over-long names were found only when the first checkpoint was to get its name."""
    with pytest.raises(OptionError, match="cannot be written"):
        check_writable(os.path.join(tmp_path, name))
    with pytest.raises(OptionError, match="cannot be written"), atomic_write(os.path.join(tmp_path, name)):
        pytest.fail("the block must not run")


KILLED = """
import os, signal, sys, time
from maxmargin.formats.atomic import atomic_write
with atomic_write(sys.argv[1]) as stream:
    stream.write(b"half")
    stream.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def writer(path):
    """A process in the middle of a write."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def age(folder, seconds=3600):
    for entry in os.scandir(folder):
        if entry.name.endswith(".tmp"):
            os.utime(entry.path, (entry.stat().st_atime - seconds, entry.stat().st_mtime - seconds))


@pytest.mark.skipif(os.name != "posix", reason="processes are killed as in POSIX")
def test_files_of_killed_processes_are_removed_and_those_of_live_ones_stay(tmp_path):
    path = tmp_path / "model.mm"
    killed, alive = writer(path), writer(path)
    try:
        killed.kill()
        killed.wait()
        assert len(os.listdir(tmp_path)) == 2
        with atomic_write(path) as stream:
            stream.write(b"one")
        # A file that is so new may be of a process that has not locked it yet.
        assert len(os.listdir(tmp_path)) == 3
        age(tmp_path)
        with atomic_write(path) as stream:
            stream.write(b"two")
        left = sorted(os.listdir(tmp_path))
        assert len(left) == 2
        assert left[1] == "model.mm"
    finally:
        alive.kill()
        alive.wait()
        alive.stdout.close()
        killed.stdout.close()
    age(tmp_path)
    with atomic_write(path) as stream:
        stream.write(b"three")
    assert os.listdir(tmp_path) == ["model.mm"]


def test_other_files_are_left_alone(tmp_path):
    others = [".model.mm.tmp", ".model.mm.0123.tmp", ".other.mm.0123456789abcdef.tmp", ".model.mm.0123456789abcdeg.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".model.mm.0123456789abcdef.tmp").mkdir()
    age(tmp_path)
    with atomic_write(tmp_path / "model.mm") as stream:
        stream.write(b"x")
    assert set(os.listdir(tmp_path)) == {*others, ".model.mm.0123456789abcdef.tmp", "model.mm"}
