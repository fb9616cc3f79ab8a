"""Compressed files are recognised by content, and every way to be unreadable is a sentence."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import threading
import zipfile
import zlib

import numpy as np
import pytest

from maxmargin.errors import DataError
from maxmargin.formats import compression, read_conll, read_svm_hmm, read_svmlight_classes
from maxmargin.formats.compression import keeping, open_binary, open_text
from maxmargin.formats.npz import read_npz
from maxmargin.parsing.treebank import read_trees

TEXT = "".join(f"line {i} {i * i % 977} ä\n" for i in range(40_000))
COMPRESSORS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "plain": lambda data: data}


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_kind_is_told_by_content_not_by_name(tmp_path, kind):
    path = tmp_path / "data.arff.zzz"
    path.write_bytes(COMPRESSORS[kind](TEXT.encode()))
    with open_text(path) as stream:
        assert stream.read() == TEXT
    with open_binary(path) as stream:
        assert stream.read() == TEXT.encode()


def test_line_ends_and_byte_order_mark(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    with open_text(path) as stream:
        assert list(stream) == ["a\n", "b\n"]


def test_empty_file(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(b"")
    with open_text(path) as stream:
        assert stream.read() == ""


@pytest.mark.parametrize("opener", [open_text, open_binary])
def test_missing_file_and_directory(tmp_path, opener):
    with pytest.raises(DataError, match=r"The file .*nowhere cannot be opened: No such file"):
        opener(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot be opened: Is a directory"):
        opener(tmp_path)


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_truncated_file_names_the_line(tmp_path, kind):
    data = COMPRESSORS[kind](TEXT.encode())
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) * 3 // 4])
    with open_text(path) as stream, pytest.raises(DataError, match=r"cut is truncated or corrupt.* line \d+ "):
        stream.read()


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_corrupt_file(tmp_path, kind):
    data = bytearray(COMPRESSORS[kind](TEXT.encode()))
    middle = len(data) // 2
    data[middle : middle + 64] = b"\xa5" * 64
    path = tmp_path / "bad"
    path.write_bytes(data)
    with open_binary(path) as stream, pytest.raises(DataError, match=r"bad is truncated or corrupt"):
        stream.read()


@pytest.mark.parametrize("tail", [b"\xff rest\n", b"\xc3"])
def test_not_utf8_names_the_line(tmp_path, tail):
    path = tmp_path / "latin"
    path.write_bytes(b"fine\n" * 30_000 + tail)
    with open_text(path) as stream, pytest.raises(DataError, match=r"latin is not UTF-8 text at line 30001"):
        stream.read()


def bomb(kind, megabytes=8):
    """A short file that unpacks to many bytes."""
    made = {"gz": zlib.compressobj(wbits=31), "xz": lzma.LZMACompressor(preset=0), "bz2": bz2.BZ2Compressor()}[kind]
    piece = b"0,0\n" * (1 << 18)
    return b"".join([made.compress(piece) for _ in range(megabytes)]) + made.flush()


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_a_small_file_does_not_unpack_to_gigabytes(tmp_path, kind, monkeypatch):
    """Less than 1 kB of bzip2 took over 3.6 GB as ARFF."""
    # What is free is 64 MB, which take long to make.
    monkeypatch.setattr(compression, "FREE_BYTES", 4 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(bomb(kind))
    assert path.stat().st_size < 50_000
    with (
        pytest.raises(DataError, match=r"bomb unpacks to more than \d+ bytes.* unpack it first"),
        open_text(path) as stream,
    ):
        for _ in stream:
            pass


def test_what_unpacks_to_little_has_no_limit(tmp_path):
    path = tmp_path / "zeros"
    path.write_bytes(bomb("bz2", 4))
    with open_binary(path) as stream:
        assert len(stream.read()) == 4 << 20


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no such devices here")
def test_devices_are_no_files():
    with pytest.raises(DataError, match="neither a regular file nor a pipe"):
        open_text("/dev/zero")


# ------------------------------------------------------------------------------------------------- pipes


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")


@contextlib.contextmanager
def piped(path, content):
    """A named pipe into which a thread writes."""
    os.mkfifo(path)

    def write():
        # A reader may go away early.
        with contextlib.suppress(BrokenPipeError):
            path.write_bytes(content)

    writer = threading.Thread(target=write)
    writer.start()
    yield path
    writer.join()


class Input:
    """A standard input."""

    def __init__(self, content):
        self.buffer = io.BytesIO(content)


@needs_pipes
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_named_pipes(tmp_path, kind):
    content = b"one\ntwo\n" * 20_000
    with piped(tmp_path / "pipe", COMPRESSORS[kind](content)) as path, open_binary(path) as stream:
        assert stream.read() == content


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_standard_input(monkeypatch, kind):
    monkeypatch.setattr("sys.stdin", Input(COMPRESSORS[kind]("caf\u00e9\n".encode())))
    with open_text("-") as stream:
        assert stream.read() == "caf\u00e9\n"


def test_no_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="The file - cannot be opened: the standard input is closed"):
        open_text("-")


@needs_pipes
def test_pipes_have_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(compression, "MOST_PIPED", 1 << 20)
    monkeypatch.setattr(compression, "FREE_BYTES", 4 << 20)
    with (
        piped(tmp_path / "long", b"x" * (3 << 20)) as path,
        pytest.raises(DataError, match="more than 1048576 bytes came"),
    ):
        open_text(path)
    # The same limit as for files: bytes that unpack to very many.
    with (
        piped(tmp_path / "bomb", bomb("bz2")) as path,
        open_binary(path) as stream,
        pytest.raises(DataError, match="unpacks to more than 4194304 bytes"),
    ):
        for _ in stream:
            pass


@needs_pipes
def test_what_is_kept_can_be_opened_again(tmp_path, monkeypatch):
    with piped(tmp_path / "pipe", b"once") as path, keeping(path), keeping(path):
        for _ in range(3):
            with open_binary(path) as stream:
                assert stream.read() == b"once"
    monkeypatch.setattr("sys.stdin", Input(b"again"))
    with keeping("-"):
        assert [open_binary("-").read() for _ in range(2)] == [b"again", b"again"]
    assert open_binary("-").read() == b""
    # Files are read as ever, and what is not there is found by who opens it.
    with keeping(tmp_path / "none"), pytest.raises(DataError, match="none cannot be opened: No such file"):
        open_binary(tmp_path / "none")


@needs_pipes
def test_readers_take_pipes(tmp_path):
    stored = io.BytesIO()
    np.savez(stored, X=np.eye(2), y=np.arange(2))
    with piped(tmp_path / "a.npz", stored.getvalue()) as path:
        assert read_npz(path, ["y"])["y"].tolist() == [0, 1]
    with piped(tmp_path / "a.svm", b"1 1:1\n-1 2:1\n") as path:
        assert read_svmlight_classes(path).y.tolist() == [1, -1]
    with piped(tmp_path / "a.hmm", b"1 qid:1 1:1\n") as path:
        assert read_svm_hmm(path).tags.tolist() == [1]
    with piped(tmp_path / "a.conll", b"a A\n") as path:
        assert read_conll(path) == ([[("a",)]], [["A"]])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.mrg", "(S (N a))")
    for content in (b"(S (N a))", archive.getvalue()):
        with piped(tmp_path / f"trees{len(content)}", content) as path:
            assert [str(tree) for tree in read_trees(path)] == ["(S (N a))"]
