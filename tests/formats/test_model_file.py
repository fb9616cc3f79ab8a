"""The model file under attack: nothing but the very same data or a ModelFileError ever comes out."""

import hashlib
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest

from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats import model_file
from maxmargin.formats.model_file import read_header, read_model, write_model

HEADER = {"estimator": "demo", "C": np.float64(0.5), "classes": ("a", "ä"), "n": np.int32(3), "none": None, "ok": True}
ARRAYS = {
    "w": np.linspace(-1, 1, 12).reshape(3, 4),
    "steps": np.arange(5, dtype=np.int32),
    "mask": np.array([True, False]),
    "names": np.array(["x", "yz", "ä"]),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "scalar": np.array(7, dtype=np.uint8),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big": np.arange(3, dtype=">i8"),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.mm"
    write_model(path, HEADER, ARRAYS)
    return path


def same(one, two):
    return (
        one[0] == two[0]
        and one[1].keys() == two[1].keys()
        and all(a.dtype == two[1][k].dtype and np.array_equal(a, two[1][k]) for k, a in one[1].items())
    )


def npy(array, allow_pickle=False):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=allow_pickle)
    return buffer.getvalue()


def entry(array, **changes):
    described = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "nbytes": array.nbytes,
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
    }
    return described | changes


def forge(path, members, header=None, compression=zipfile.ZIP_STORED):
    """Write a zip by hand: `members` is a list of (name, bytes), after a header.json made of `header`."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        if header is not None:
            base = {"format": "maxmargin model", "format_version": 1, "arrays": {}}
            archive.writestr("header.json", json.dumps(base | header))
        for name, content in members:
            archive.writestr(name, content)
    return path


def refused(path, match, **options):
    with pytest.raises(ModelFileError, match=match):
        read_model(path, **options)
    return True


W = np.arange(4.0)


def test_round_trip(path):
    header, arrays = read_model(path)
    assert header["format"] == "maxmargin model"
    assert header["format_version"] == 1
    assert {key: header[key] for key in HEADER} == {
        "estimator": "demo",
        "C": 0.5,
        "classes": ["a", "ä"],
        "n": 3,
        "none": None,
        "ok": True,
    }
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].flags.c_contiguous
        assert arrays[name].flags.writeable
        np.testing.assert_array_equal(arrays[name], array)
    assert read_header(path) == header
    assert header["arrays"]["w"] == entry(ARRAYS["w"])


def test_no_arrays(tmp_path):
    write_model(tmp_path / "m.mm", {}, {})
    assert read_model(tmp_path / "m.mm")[1] == {}


def test_same_input_same_bytes(path, tmp_path):
    other = tmp_path / "other.mm"
    write_model(other, dict(reversed(HEADER.items())), dict(reversed(ARRAYS.items())))
    assert other.read_bytes() == path.read_bytes()


def test_deflated_members_are_read(tmp_path):
    path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(W))], {"arrays": {"w": entry(W)}}, zipfile.ZIP_DEFLATED)
    np.testing.assert_array_equal(read_model(path)[1]["w"], W)


def test_truncation_anywhere(path, tmp_path):
    whole = path.read_bytes()
    cut = tmp_path / "cut.mm"
    for size in [*range(0, len(whole), 37), *range(len(whole) - 40, len(whole))]:
        cut.write_bytes(whole[:size])
        assert refused(cut, r"cut.mm")
        with pytest.raises(ModelFileError):
            read_header(cut)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_flipped_bytes_anywhere(tmp_path, mask):
    path = tmp_path / "m.mm"
    write_model(path, {"C": 1.5}, {"w": W, "names": np.array(["a", "b"])})
    truth = read_model(path)
    whole = path.read_bytes()
    n_refused = 0
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= mask
        path.write_bytes(altered)
        try:
            found = read_model(path)
        except ModelFileError:
            n_refused += 1
        else:
            assert same(found, truth), f"byte {position}"
    assert n_refused > 0.7 * len(whole)


def test_old_file_survives_a_failure_midway(path, monkeypatch):
    before = path.read_bytes()
    calls = []

    def fail_second(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return original(*args, **kwargs)

    original = np.lib.format.write_array
    monkeypatch.setattr(np.lib.format, "write_array", fail_second)
    with pytest.raises(OSError, match="No space"):
        write_model(path, {}, ARRAYS)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.mm"]


def test_altered_array_with_mended_zip_checksum(tmp_path):
    path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(W + 1))], {"arrays": {"w": entry(W)}})
    assert refused(path, r"m.mm was altered: the SHA-256 of the array 'w' does not fit")


def test_missing_and_foreign_files(tmp_path):
    path = tmp_path / "m.mm"
    assert refused(path, r"The model file .*m.mm does not exist")
    for content in (b"", b"hello", b"\x80\x04K\x01.", b"PK\x05\x06" + bytes(18)):
        path.write_bytes(content)
        assert refused(path, r"m.mm is no model file: it is not a zip archive")
    assert refused(tmp_path, r"altered \(.*Is a directory")
    assert refused(forge(path, [("a.txt", b"x")]), "m.mm is no model file: the zip archive has no header.json")
    assert refused(forge(path, [], {"format": "other"}), "m.mm is no model file: .* does not say format")
    assert refused(forge(path, [("header.json", b"[]")]), "is no model file")


def test_versions(tmp_path):
    path = tmp_path / "m.mm"
    assert refused(forge(path, [], {"format_version": 2}), r"written by a newer maxmargin \(format_version 2\)")
    for version in (0, "1", None, True, 1.0):
        assert refused(forge(path, [], {"format_version": version}), "format_version .*; expected 1")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"{", "header.json is not JSON"),
        (b"\xff\xfe", "header.json is not JSON"),
        (b'{"format": NaN}', "header.json is not JSON"),
        (b'{"a":' * 100_000, "header.json is nested too deep"),
        (b'{"n": ' + b"9" * 10_000 + b"}", "header.json is not JSON"),
    ],
)
def test_bad_json(tmp_path, content, match):
    assert refused(forge(tmp_path / "m.mm", [("header.json", content)]), match)


def test_header_size_limit(tmp_path):
    path = forge(tmp_path / "m.mm", [("header.json", b" " * ((16 << 20) + 1))])
    assert refused(path, r"header.json declares 16777217 bytes; the limit is 16 MiB")


def test_zip_bomb(tmp_path):
    zeros = np.zeros(1 << 20)
    path = tmp_path / "m.mm"
    forge(path, [("arrays/w.npy", npy(zeros))], {"arrays": {"w": entry(zeros)}}, zipfile.ZIP_DEFLATED)
    assert refused(path, r"'arrays/w.npy' declares 8388736 bytes in \d+, more than a model file can hold")


def test_limit_of_bytes(path):
    assert refused(path, r"declares \d+ bytes of content; the limit max_bytes is 100", max_bytes=100)


def patch_sizes(path, name, old, new, compressed_too):
    """Make the central directory lie about the size of a member."""
    content = bytearray(path.read_bytes())
    at = content.rindex(name) - 46
    assert int.from_bytes(content[at + 24 : at + 28], "little") == old
    content[at + 24 : at + 28] = new.to_bytes(4, "little")
    if compressed_too:
        content[at + 20 : at + 24] = new.to_bytes(4, "little")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("compressed_too", "match"), [(False, "more than a model file can hold"), (True, "declares more bytes than it has")]
)
def test_lying_sizes(tmp_path, compressed_too, match):
    path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(W))], {"arrays": {"w": entry(W)}})
    patch_sizes(path, b"arrays/w.npy", len(npy(W)), 3 << 30, compressed_too)
    assert refused(path, match)


def test_oversized_shape(tmp_path, monkeypatch):
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("an array was allocated"))
    path = tmp_path / "m.mm"
    huge = npy(W).replace(b"'shape': (4,), }" + b" " * 12, b"'shape': (4000000000000,), }")
    assert huge != npy(W)
    assert len(huge) == len(npy(W))
    # The header, the npy member, or both of them lie.
    forge(path, [("arrays/w.npy", npy(W))], {"arrays": {"w": entry(W, shape=[4 * 10**12])}})
    assert refused(path, "which is 32000000000000 bytes, but 32 are declared in the header")
    forge(path, [("arrays/w.npy", npy(W))], {"arrays": {"w": entry(W, shape=[4 * 10**12], nbytes=32 * 10**12)}})
    assert refused(path, r"32000000000000 are declared in the header and 160 in the zip")
    forge(path, [("arrays/w.npy", huge)], {"arrays": {"w": entry(W)}})
    assert refused(path, r"says dtype <f8 and shape \[4000000000000\] in the npy member, but <f8 and \[4\]")
    forge(path, [("arrays/w.npy", huge)], {"arrays": {"w": entry(W, shape=[4 * 10**12], nbytes=32 * 10**12)}})
    assert refused(path, "32000000000000 are declared")
    forge(path, [("arrays/w.npy", npy(W) + b"more")], {"arrays": {"w": entry(W)}})
    assert refused(path, "the array 'w' is not as long as its shape says")


def test_pickles_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("a pickle was executed",)

    objects = np.array([Bomb()], dtype=object)
    path = tmp_path / "m.mm"
    header = np.lib.format.magic(1, 0) + b"v\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    content = header.ljust(127) + b"\n" + pickle.dumps(objects)
    as_object = {"dtype": "|O", "shape": [1], "nbytes": 8, "sha256": ""}
    assert refused(
        forge(path, [("arrays/w.npy", content)], {"arrays": {"w": as_object}}), "describes the array 'w' wrong"
    )
    as_floats = {"dtype": "<f8", "shape": [1], "nbytes": 8, "sha256": ""}
    assert refused(forge(path, [("arrays/w.npy", content)], {"arrays": {"w": as_floats}}), r"says dtype \|O and shape")
    assert refused(
        forge(path, [("arrays/w.npy", pickle.dumps(objects))], {"arrays": {"w": as_floats}}), "not a plain npy"
    )


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "arrays/../../w.npy",
        "arrays/a/b.npy",
        "arrays/w.txt",
        "w.npy",
        "arrays/.npy",
        "arrays\\w.npy",
    ],
)
def test_member_names(tmp_path, name):
    assert refused(forge(tmp_path / "m.mm", [(name, npy(W))], {}), "has the member .* which has no place")


def test_name_that_zipfile_would_mend(tmp_path):
    path = forge(tmp_path / "m.mm", [("arrays/w.npyXevil", npy(W))], {"arrays": {"w": entry(W)}})
    path.write_bytes(path.read_bytes().replace(b"w.npyXevil", b"w.npy\0evil"))
    assert refused(path, "which has no place")


def test_duplicate_names(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(W))] * 2, {"arrays": {"w": entry(W)}})
    assert refused(path, "has the member 'arrays/w.npy' twice")


def test_too_many_members(tmp_path):
    path = forge(tmp_path / "m.mm", [(f"arrays/w{i}.npy", b"") for i in range(256)], {})
    assert refused(path, "has 257 members; a model file has at most 256")


def test_members_and_header_must_agree(tmp_path):
    path = tmp_path / "m.mm"
    assert refused(forge(path, [("arrays/w.npy", npy(W))], {}), "'arrays/w.npy' is in the header or in the zip, not in")
    assert refused(
        forge(path, [], {"arrays": {"w": entry(W)}}), "'arrays/w.npy' is in the header or in the zip, not in"
    )
    assert refused(forge(path, [], {"arrays": [1]}), "does not describe the arrays")


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        entry(W, dtype="O"),
        entry(W, dtype="<c16"),
        entry(W, dtype="f8,f8"),
        entry(W, dtype="<f16"),
        entry(W, dtype="<f3"),
        entry(W, dtype="<U999999999"),
        entry(W, dtype=8),
        entry(W, shape=4),
        entry(W, shape=[-4]),
        entry(W, shape=[4.0]),
        entry(W, shape=[True]),
        entry(W, shape=[1] * 40),
        entry(W, nbytes="32"),
        entry(W, sha256=None),
    ],
)
def test_wrong_descriptions(tmp_path, wrong):
    path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(W))], {"arrays": {"w": wrong}})
    assert refused(path, "the array 'w'")


def test_fortran_order_is_not_ours(tmp_path):
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(array))], {"arrays": {"w": entry(array)}})
    assert refused(path, "in C order")


def test_other_compression(tmp_path):
    path = forge(tmp_path / "m.mm", [("arrays/w.npy", npy(W))], {"arrays": {"w": entry(W)}}, zipfile.ZIP_LZMA)
    assert refused(path, "encrypted or compressed in another way")


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ({"format": 1}, "has the key 'format', which the format itself uses"),
        ({"a": [1.0, float("nan")]}, r"header\['a'\]\[1\] is nan"),
        ({"a": np.float32("inf")}, r"header\['a'\] is inf"),
        ({"a": {1: 2}}, r"header\['a'\] has the key 1; expected keys of type str"),
        ({"a": np.zeros(2)}, r"header\['a'\] is of type ndarray, which JSON cannot hold"),
        ({"a": object()}, "is of type object"),
        ({"a": "x" * (17 << 20)}, "expected at most 16 MiB"),
    ],
)
def test_headers_that_cannot_be_written(tmp_path, header, match):
    with pytest.raises(OptionError, match=match):
        write_model(tmp_path / "m.mm", header, {})
    assert not list(tmp_path.iterdir())


def test_deep_header_cannot_be_written(tmp_path):
    deep: list[object] = []
    deep.append(deep)
    with pytest.raises(OptionError, match="nested more than 64 deep"):
        write_model(tmp_path / "m.mm", {"a": deep}, {})


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"a/b": W}, "The array name 'a/b' has characters other than"),
        ({"": W}, "The array name '' has"),
        ({"w": np.array([object()])}, "The array 'w' has dtype object"),
        ({"w": np.zeros(2, dtype=complex)}, "has dtype complex128"),
        ({"w": np.zeros(2, dtype="f8,f8")}, "expected bool, integers, floats or strings"),
        ({f"w{i}": W for i in range(256)}, "256 arrays are too many"),
    ],
)
def test_arrays_that_cannot_be_written(tmp_path, arrays, match):
    with pytest.raises(OptionError, match=match):
        write_model(tmp_path / "m.mm", {}, arrays)
    assert not list(tmp_path.iterdir())


def test_format_constants():
    assert (model_file.FORMAT, model_file.FORMAT_VERSION) == ("maxmargin model", 1)
