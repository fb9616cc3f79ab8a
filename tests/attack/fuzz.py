"""Mutated files for all readers: data in every format, compressed or not, packed folders, model files, checkpoints, and messages.

    python tests/attack/fuzz.py --inputs 200000 --seed 0

Each input is a valid file that was changed: bytes, lines, numbers, nesting, sizes in headers. A reader may accept it, or raise
one of our errors (`DataError`, `OptionError`, `ModelFileError`, `TooLargeError`) with a sentence. Everything else is a fault:
another class, a crash of the process, more than 1 GB of memory, more than 5 seconds. Inputs are read in a process of their own,
whose memory is limited; what they are depends on the seed and on their number alone.

Packed folders that are accepted are trained on, so that what is in them goes to kernels. Messages are what the client and the
workers of a cluster exchange (solvers/oracles/sharded.py), with other things in the place of their parts. (Dask sends them as
pickles: whoever can reach a worker can run anything there. What is looked at here is damage.)
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import io
import json
import lzma
import multiprocessing as mp
import os
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

SECONDS, BYTES = 5.0, 1 << 30
_NUMBERS = (
    "0", "-1", "1e999", "nan", "inf", "1000000000", "99999999999999999999", "9" * 400, "9" * 5000 + "x", "1e-400", "0x10",
    "1_0", "-0.0", "2147483648", "9223372036854775808", ".", "+", "1.", ".5e", "",
)  # fmt: skip
_PIECES = (
    b"\0", b"\x1f", b"\x0b", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\t", b" ", b",", b":", b"#", b"%", b"{", b"}",
    b"(", b")", b"'", b'"', b"\\", b"qid:", b"@data", b"@attribute ", b"1:1", "\u00a0".encode(), "\u0661".encode(),
    b"(" * 3000, b")" * 3000, b"9" * 20000, b"\xed\xa0\x80", b"-DOCSTART-", b"?", b"1:", b":1", b"nan", b"inf", b"e5", b"_",
)  # fmt: skip

SVM = b"1 1:0.5 3:2 # c\n-1 2:1.5 7:-1e3\n+1 qid:3 1:1\n2 4:.5\n" * 3
MULTI = b"0,2 1:1 2:0.5\n1 3:2\n 2:1\n0,1,2 1:3\n" * 3
HMM = b"1 qid:1 1:1 2:1\n2 qid:1 2:1\n1 qid:2 3:0.25\n"
DENSE = b"""@relation 'toy: -C -2'
@attribute a numeric
@attribute 'b c' real
@attribute d {x, 'y z', w}
@attribute l1 {0,1}
@attribute l2 {0,1}
@data
1,2.5,x,0,1
-1e3,.5,'y z',1,1
% comment
0,0,w,0,0
"""
SPARSE = b"""@relation toy
@attribute a numeric
@attribute b integer
@attribute l1 {0,1}
@attribute l2 {0,1}
@data
{0 1.5, 2 1}
{1 -3}
{}
{0 2,1 4,2 1,3 1}
"""
XML = b"""<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="l1"/><label name="l2"/></labels>"""
CONLLU = (
    b"# a\n1-2\tdont"
    + b"\t_" * 8
    + b"\n1\tdo\tdo\tAUX\tVB\t_\t0\troot\t_\t_\n2\tnot\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_\n\n"
)
CONLL = "the DT B-NP\ncat NN I-NP\n\nsits VB O\nna\u00efve JJ O\n".encode()
CSV = b'age,colour,"a b",y,z\n30,red,1.5,1,0\n40,blue,-2e3,0,1\n\n50,"r""ed",true,1,1\n'
TOKENS = b"""{"id": 1, "tokens": ["the", "cat"], "ner_tags": [0, 1]}
{"id": 2, "tokens": ["a"], "ner_tags": [0]}
"""
TEXTS = b"""{"text": "Ada met Mr. X.", "entities": [[0, 3, "PER"]], "tokens": [{"start": 0, "end": 3}, {"start": 4, "end": 7}]}
["Eve sings", {"entities": [[0, 3, "PER"]]}]
{"id": 3, "paragraphs": [{"sentences": [{"tokens": [{"orth": "Ada", "ner": "U-PER"}]}]}], "text": "", "ents": []}
"""
TREES = b"( (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ barks) (-NONE- *))))\n(S (A a) (B b))\n(X (Y (Z z)))\n"


def _npz(compressed: bool, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def _png() -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(stream, "PNG")
    return stream.getvalue()


def _parquet() -> dict[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [0.5, 1.0, -1.0], "c": ["x", "y", "x"]}), stream)
    return {"parquet": stream.getvalue()}


def seeds() -> dict[str, bytes]:
    """A valid file of each kind."""
    _make_solvers()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    y = np.array([0, 1, 2, 0, 1, 2])
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/one.mrg", TREES)
        archive.writestr("a/two.mrg", TREES)
    zipped_words = io.BytesIO()
    with zipfile.ZipFile(zipped_words, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/train.txt", CONLL)
    graphs = {
        "X": X, "y": y, "edges": np.array([[0, 1], [1, 2], [0, 2]]), "edge_features": np.ones((3, 1)),
        "node_ptr": np.array([0, 3, 6]), "edge_ptr": np.array([0, 2, 3]), "split": np.array([0, 1]),
    }  # fmt: skip
    found = {
        "svmlight": SVM, "multilabel": MULTI, "svm-hmm": HMM, "arff-dense": DENSE, "arff-sparse": SPARSE, "xml": XML,
        "conllu": CONLLU, "conll": CONLL, "csv": CSV, "json-tokens": TOKENS, "json-texts": TEXTS, "image": _png(), **_parquet(),
        "trees": TREES, "trees-zip": zipped.getvalue(), "conll-zip": zipped_words.getvalue(),
        "npz-rows": _npz(False, X=X, y=y, classes=np.array(["a", "b", "c"]), split=y % 2),
        "npz-labels": _npz(True, X=X, y=np.eye(3, dtype=int)[y]),
        "npz-sequences": _npz(True, X=X, y=y, sequence_ptr=np.array([0, 2, 6])),
        "npz-graphs": _npz(True, **graphs),
        "npz-graphs-stored": _npz(False, **graphs, classes=np.array(["a", "b", "c"])),
    }  # fmt: skip
    return found | _folders(X, y) | {f"message-{kind}": b"" for kind in ("weights", "part", "facts")} | _models(X, y)


def _folders(X: np.ndarray, y: np.ndarray) -> dict[str, bytes]:
    """Packed folders, as zip archives of their files."""
    import scipy.sparse as sp

    from maxmargin.features import TextFeatures
    from maxmargin.packed import pack
    from maxmargin.packed.packing import pack_words

    found = {}
    wide = sp.random(6, 40_000, 0.0005, format="csr", random_state=0)
    words = [([("the", "DT"), ("cat", "NN")], ["A", "B"]), ([("sits", "VB")], ["C"])]
    with tempfile.TemporaryDirectory() as folder:
        for name, rows, labels in (
            ("classes", X, y), ("sparse", sp.csr_array(np.round(X)), np.array(list("abcabc"))), ("wide", wide, y),
            ("labels", X, np.eye(3, dtype=int)[y]), ("chain", [X[:2], X[2:]], [[0, 1], [2, 0, 1, 2]]), ("words", None, None),
            # Changed types need kernels of their own, which are to be there when the clock starts.
            ("classes32", X.astype(np.float32), y), ("sparse32", sp.csr_array(np.round(X).astype(np.float32)), y),
            ("labels32", X.astype(np.float32), np.eye(3, dtype=int)[y]),
            ("chain32", [X[:2].astype(np.float32), X[2:].astype(np.float32)], [[0, 1], [2, 0, 1, 2]]),
        ):  # fmt: skip
            path = os.path.join(folder, name)
            if rows is None:
                pack_words(path, lambda: words, TextFeatures.chunking())
            else:
                pack(path, rows, labels)
            found[f"packed-{name}"] = _zipped({one.name: one.read_bytes() for one in Path(path).iterdir()})
    return found


def _zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        warnings.simplefilter("ignore")
        for name, member in members.items():
            archive.writestr(name, member)
    return out.getvalue()


def _models(X: np.ndarray, y: np.ndarray) -> dict[str, bytes]:
    import maxmargin as mm
    from maxmargin.features import TextFeatures

    words = [["the", "cat", "sits"], ["a", "dog"]]
    made = {
        "model-binary": mm.BinarySVM(max_passes=2).fit(X, y > 0),
        "model-classes": mm.MultiClassSVM(max_passes=2, class_weight={"a": 2.0}).fit(X, np.array(["a", "b", "c"])[y]),
        "model-kernel": mm.MultiClassSVM(max_passes=2, kernel="rbf").fit(X, y),
        "model-basis": mm.MultiClassSVM(max_passes=2, kernel="rbf", n_basis=3).fit(X, y),
        "model-labels": mm.MultiLabelSVM(max_passes=2).fit(X, np.eye(3, dtype=int)[y]),
        "model-chain": mm.ChainSVM(max_passes=2, forbidden=[(0, 0)], boundary=False).fit([X], [[0, 1, 2, 0, 1, 2]]),
        "model-text": mm.ChainSVM(max_passes=2, features=TextFeatures(prefixes=2)).fit(
            words, [["D", "N", "V"], ["D", "N"]]
        ),
        "model-graph": mm.GraphSVM(max_passes=2).fit([(X, [[0, 1]])], [y]),
        "model-parser": mm.ParserSVM(max_passes=2).fit(["(S (A a) (B b))", "(S (B b) (A a))"]),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in made.items():
            path = os.path.join(folder, name)
            model.save(path)
            found[name] = Path(path).read_bytes()
        for name, solver in SOLVERS.items():
            path = os.path.join(folder, name)
            solver.solve(_problem(), max_passes=2, checkpoint=path)
            found[name] = Path(path).read_bytes()
    return found


def _problem() -> object:
    from maxmargin.problems import multi_class_problem

    X = np.random.default_rng(0).normal(size=(6, 3))
    return multi_class_problem(X, np.array([0, 1, 2, 0, 1, 2]), 3)


# --------------------------------------------------------------------------------------------------------------------
# Changes


def mutate(kind: str, content: bytes, rng: random.Random) -> bytes:
    """A changed file, compressed as often as not where its reader unpacks."""
    if kind.startswith("message"):
        return rng.randbytes(16)
    if kind.startswith("packed"):
        return _mutate_folder(content, rng)
    if kind.startswith(("model", "checkpoint", "npz")) and rng.random() < 0.75:
        try:
            content = _mutate_archive(content, rng)
        # A second change may find nothing that it can change after the first.
        except (ValueError, LookupError):
            content = _bytes(content, rng)
    else:
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            content = rng.choice((_bytes, _bytes, _piece, _piece, _cut, _lines, _number, _number, _repeat))(
                content, rng
            )
    if (
        kind.startswith(("model", "checkpoint", "npz", "parquet", "image"))
        or kind.endswith("zip")
        or rng.random() < 0.6
    ):
        return content
    content = rng.choice((gzip.compress, bz2.compress, _xz))(content)
    if rng.random() < 0.5:
        content = rng.choice((_bytes, _cut, _piece))(content, rng)
    return content


def _xz(content: bytes) -> bytes:
    # The usual dictionary of 8 MiB takes longer to set up than the content to compress.
    return lzma.compress(content, preset=0)


def _bytes(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _piece(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(_PIECES) + content[at:]


def _cut(content: bytes, rng: random.Random) -> bytes:
    first, last = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
    return rng.choice((content[:first], content[first:], content[:first] + content[last:]))


def _repeat(content: bytes, rng: random.Random) -> bytes:
    first = rng.randrange(len(content) + 1)
    piece = content[first : first + rng.randrange(1, 40)]
    return content[:first] + piece * rng.choice((2, 10, 1000)) + content[first:]


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    rng.shuffle(lines) if rng.random() < 0.5 else lines.extend(lines[: rng.randrange(5)])
    return b"\n".join(lines)


def _number(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    at = rng.choice(found)
    return content[: at.start()] + rng.choice(_NUMBERS).encode() + content[at.end() :]


def _mutate_archive(content: bytes, rng: random.Random) -> bytes:
    """Change the members of a zip, so that the change gets past its checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(members))
        if name == "header.json":
            members[name] = json.dumps(_mutate_json(json.loads(members[name]), rng)).encode("utf-8", "surrogatepass")
        elif rng.random() < 0.15:
            members[rng.choice(list(members))] = members.pop(name)
        elif rng.random() < 0.5:
            members[name] = _mutate_array(members[name], rng)
        else:
            members[name] = rng.choice((_bytes, _cut, _piece, _number))(members[name], rng)
    if "header.json" in members and rng.random() < 0.8:
        _describe(members)
    # The rarer methods take most of the time of all changes together.
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    (method,) = rng.choices(methods, (48, 48, 2, 2))
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, member in members.items():
            archive.writestr(name, member)
    changed = out.getvalue()
    return _bytes(changed, rng) if rng.random() < 0.15 else changed


def _mutate_folder(content: bytes, rng: random.Random) -> bytes:
    """Change the files of a packed folder; often its header is then made true again about them."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(list(members))
        change = rng.random()
        if name == "header.json" and change < 0.8:
            try:
                members[name] = json.dumps(_mutate_json(json.loads(members[name]), rng)).encode(
                    "utf-8", "surrogatepass"
                )
            except ValueError:
                members[name] = _bytes(members[name], rng)
        elif change < 0.1:
            members[rng.choice(list(members))] = members.pop(name)
        elif change < 0.7:
            members[name] = _in_128(_mutate_array(members[name], rng)) or members[name]
        else:
            members[name] = rng.choice((_bytes, _bytes, _cut, _piece, _number))(members[name], rng)
    if rng.random() < 0.8:
        _describe(members, "")
    return _zipped(members)


def _in_128(npy: bytes) -> bytes:
    """An npy file with a header of 128 bytes, as packed folders have them; nothing if that is too short."""
    try:
        array = np.lib.format.read_array(io.BytesIO(npy), allow_pickle=False)
    except Exception:
        return b""
    said = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    if len(said) > 117:
        return b""
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + said.ljust(117).encode() + b"\n" + array.tobytes()


def _mutate_array(content: bytes, rng: random.Random) -> bytes:
    """Another array: of other numbers, another shape or another dtype."""
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:
        return b""
    choice = rng.randrange(6)
    if choice == 0 and array.size and array.dtype.kind in "iuf":
        array = array.copy()
        extreme = [0, 1] + (
            [-1, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min] if array.dtype.kind == "i" else []
        )
        array.flat[rng.randrange(array.size)] = rng.choice(
            extreme if array.dtype.kind != "f" else [np.nan, np.inf, 1e308, -1.0]
        )
    elif choice == 1:
        kinds = (
            [np.float32, np.int8, np.uint64, "U5", bool, complex] if array.dtype.kind in "biuf" else ["U1", "U5", "S3"]
        )
        array = array.astype(rng.choice(kinds))
    elif choice == 2:
        array = array[..., :-1] if array.ndim else array
    elif choice == 3:
        array = np.concatenate([array, array]) if array.ndim else array
    elif choice == 4:
        array = array.reshape(rng.choice([(-1,), (1, -1), (-1, 1), (1, 1, -1)]))
    else:
        # Nothing in it, but a large shape.
        array = np.lib.stride_tricks.as_strided(array[:0].reshape(-1), (0, 2**40), (0, 0)) if array.ndim else array
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def _mutate_json(value: object, rng: random.Random) -> object:
    """Change one entry somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.93:
        key = rng.choice(list(value))
        changed = dict(value)
        if rng.random() < 0.06:
            del changed[key]
        else:
            changed[key] = _mutate_json(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], _mutate_json(value[at], rng), *value[at + 1 :]]
    deep: object = 1
    for _ in range(rng.choice((3, 60, 200))):
        deep = [deep]
    return rng.choice(
        [
            None, True, False, 0, -1, 1, 2, 3, 10**9, 10**18, 10**400, 0.5, -0.5, 1e308, "", "zzz", "inf", "nan", "auto", "\ud800",
            [], {}, [[]], {"name": "x"}, deep, "x" * 5000, [1] * 3000, list("abc"), "10" * 200, {"a": {"b": 1}},
        ]
    )  # fmt: skip


def _describe(members: dict[str, bytes], prefix: str = "arrays/") -> None:
    """Make the header of a model file or a packed folder true again about its arrays."""
    import hashlib

    try:
        header = json.loads(members["header.json"])
        entries = {}
        for name, member in members.items():
            if name.startswith(prefix) and name.endswith(".npy"):
                array = np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)
                raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes() if array.size else b""
                entries[name[len(prefix) : -4]] = {
                    "dtype": array.dtype.str, "shape": list(array.shape), "nbytes": array.nbytes,
                    "sha256": hashlib.sha256(raw).hexdigest(),
                }  # fmt: skip
        header["arrays"] = entries
        members["header.json"] = json.dumps(header).encode("utf-8", "surrogatepass")
    except Exception:
        return


# --------------------------------------------------------------------------------------------------------------------
# Reading


def read(kind: str, path: str, folder: str) -> None:
    """Read a file with the readers of its kind."""
    from maxmargin import formats
    from maxmargin.cli.arrays import holds_graphs, read_arrays
    from maxmargin.estimators.loading import load
    from maxmargin.parsing.treebank import read_trees

    if kind == "svmlight":
        rows = formats.read_svmlight(path)
        rows.classes() if rows.one_label_each() else rows.multi_label()
    elif kind == "multilabel":
        formats.read_libsvm_multilabel(path)
    elif kind == "svm-hmm":
        data = formats.read_svm_hmm(path)
        data.sequences()
    elif kind == "arff-dense":
        formats.read_mulan(path)
    elif kind == "arff-sparse":
        formats.read_mulan(path, n_labels=2)
    elif kind == "xml":
        arff = os.path.join(folder, "toy.arff")
        if not os.path.exists(arff):
            Path(arff).write_bytes(SPARSE)
        formats.read_mulan(arff, xml=path)
    elif kind == "conllu":
        formats.read_conllu(path)
    elif kind.startswith("conll"):
        formats.read_conll(path)
    elif kind.startswith("trees"):
        list(read_trees(path, remove_traces=True, remove_functions=True, unary="collapse"))
    elif kind.startswith("npz"):
        formats.read_graphs(path) if holds_graphs(path) else read_arrays(path)
    elif kind == "csv":
        table = formats.read_table(path)
        table.features([next(iter(table.columns))])
        table.classes(list(table.columns)[-1])
        table.label_sets(list(table.columns)[-2:])
    elif kind == "parquet":
        shutil.copy(path, os.path.join(folder, "t.parquet"))
        formats.read_table(os.path.join(folder, "t.parquet")).features()
    elif kind == "json-tokens":
        formats.read_token_json(path, ["D", "N"])
    elif kind == "json-texts":
        texts = formats.read_spacy_json(path)
        if texts.tags:
            texts.entities(texts.tags)
    elif kind == "image":
        for name in ("images", "masks"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            shutil.copy(path, os.path.join(folder, name, "a.png"))
        formats.read_image_masks(folder, 0)
    elif kind.startswith("checkpoint"):
        SOLVERS[kind].solve(_problem(), max_passes=3, checkpoint=path)
    elif kind.startswith("packed"):
        _train_on(kind, path, folder)
    elif kind.startswith("message"):
        _receive(kind, Path(path).read_bytes())
    else:
        load(path)


def _train_on(kind: str, path: str, folder: str) -> None:
    """Open a packed folder, and train on it if it is accepted."""
    import maxmargin as mm
    from maxmargin.packed import read_packed

    content = Path(path).read_bytes()
    place = os.path.join(folder, "packed")
    shutil.rmtree(place, ignore_errors=True)
    os.mkdir(place)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            # Names are ours.
            Path(place, name).write_bytes(archive.read(name))
    data = read_packed(place, verify=zlib.crc32(content) % 4 == 0)
    kinds = {
        "binary": mm.MultiClassSVM,
        "multi-class": mm.MultiClassSVM,
        "multi-label": mm.MultiLabelSVM,
        "chain": mm.ChainSVM,
    }
    model = kinds[data.task](C=1.0, max_passes=2, solver="bcfw").fit(data.X, data.y)
    model.predict(data.X)
    data.X[:1]


#: Solvers whose checkpoints are read.
SOLVERS: dict[str, object] = {}


def _make_solvers() -> None:
    from maxmargin.solvers import SOLVERS as known

    names = {"": "bcfw", "-soft": "soft-bcfw", "-cutting": "one-slack", "-bundle": "bundle"}
    SOLVERS.update({f"checkpoint{kind}": known[name]() for kind, name in names.items()})


def _receive(kind: str, content: bytes) -> None:
    """Let a message arrive with other things in the place of some of its parts."""
    import dataclasses

    from maxmargin.solvers.oracles import sharded

    rng = random.Random(content)
    oracle, facts, known = _shard_oracle()
    weights, part = known[rng.randrange(2)]
    message = {"weights": weights, "facts": facts, "part": part}[kind[8:]]
    parts = [message]
    if kind == "message-part" and rng.random() < 0.8:
        parts = [message.psi]
    changed = parts[0]
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([field.name for field in dataclasses.fields(changed)])
        changed = dataclasses.replace(changed, **{name: _something(getattr(changed, name), rng)})
    if kind == "message-facts":
        sharded._check_alike([facts, changed] if rng.random() < 0.5 else [changed])
    elif kind == "message-weights":
        oracle.part(changed)
    else:
        other = changed if isinstance(changed, sharded.Part) else dataclasses.replace(message, psi=changed)
        sharded.add_all([message, other] if rng.random() < 0.5 else [other], facts.size)


_oracles: list[tuple] = []


def _shard_oracle() -> tuple:
    """An oracle, what it says of itself, and two vectors of weights with its answers."""
    from maxmargin.solvers.oracles.sharded import Packed, Question, Shard, ShardOracle

    if not _oracles:
        oracle = ShardOracle(Shard(_problem(), 6.0), Question("margin", "auto"))
        facts = oracle.facts()
        vectors = [Packed.of(np.random.default_rng(0).normal(size=facts.size) * scale) for scale in (0.0, 1.0)]
        _oracles.append((oracle, facts, [(one, oracle.part(one)) for one in vectors]))
    return _oracles[0]


def _something(value: object, rng: random.Random) -> object:
    """Something else in the place of a part of a message."""
    if isinstance(value, np.ndarray) and rng.random() < 0.7:
        array, choice = value.copy(), rng.randrange(6)
        # What was changed before may be no vector of numbers any more.
        with contextlib.suppress(ValueError, TypeError, OverflowError, LookupError):
            if choice == 0 and array.size:
                whole = array.dtype.kind == "i"
                extreme = [-1, 2**31 - 1, array.size, 10**6] if whole else [np.nan, np.inf, -np.inf, 1e308, 0.0]
                array[rng.randrange(array.size)] = rng.choice(extreme)
                return array
            changes = (lambda: array[:-1], lambda: np.concatenate([array, array]), lambda: array.reshape(1, -1))
            kinds = (np.float32, np.int8, np.uint64, ">f8", complex, object, "U5")
            return rng.choice(changes)() if choice < 3 else array.astype(rng.choice(kinds))
    return rng.choice(
        [
            None, True, False, 0, -1, 1, 2**62, 2**70, 1e308, -1e308, float("nan"), float("inf"), "", "exact", "x" * 3000, b"x", [],
            {},             ((1, 2), (3, 4)), ((-1, 2), (0, 0)), (1,), [[1, 2]], object,
            np.empty(0), np.zeros(3), np.arange(4), np.array(3.0),
        ]
    )  # fmt: skip


def _rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _TooSlowError(BaseException):
    """The time of one input is over."""


def _ring(number: int, frame: object) -> None:
    raise _TooSlowError


class Reader:
    """Reads inputs by their numbers, in limited memory and time."""

    def __init__(self, files: dict[str, bytes], seed: int) -> None:
        from maxmargin.errors import MaxMarginError

        warnings.simplefilter("ignore")
        _make_solvers()
        self.files, self.names, self.seed, self.refusal = files, sorted(files), seed, MaxMarginError
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "input")
        for kind, content in files.items():
            # Whatever is compiled or imported is so before memory and time are looked at.
            Path(self.path).write_bytes(content)
            # There is no message without a change.
            with contextlib.suppress(*((MaxMarginError,) if kind.startswith("message") else ())):
                read(kind, self.path, self.folder)
        page = os.sysconf("SC_PAGE_SIZE")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * page
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES + (256 << 20), resource.RLIM_INFINITY))
        self.before = _rss()
        signal.signal(signal.SIGPROF, _ring)

    def content(self, number: int) -> tuple[str, bytes]:
        """The kind of an input, and the input."""
        kind = self.names[number % len(self.names)]
        return kind, mutate(kind, self.files[kind], random.Random(f"{self.seed} {number}"))

    def read(self, number: int) -> tuple[str, str, str, float, int]:
        """The kind of an input, what came of it, a sentence, seconds of the processor and bytes."""
        kind, content = self.content(number)
        if not kind.startswith("message"):
            Path(self.path).write_bytes(content)
        started = time.process_time()
        outcome, detail = "accepted", ""
        signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS)
        try:
            if kind.startswith("message"):
                _receive(kind, content)
            else:
                read(kind, self.path, self.folder)
        except self.refusal as error:
            outcome = "refused" if len(str(error)) > 10 else "wrong class"
            detail = f"{type(error).__name__}: {error}"
        except BaseException as error:
            outcome, detail = "wrong class", f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds, peak = time.process_time() - started, _rss()
        if peak - self.before > BYTES:
            outcome, detail, self.before = "too much memory", f"{peak - self.before} bytes", peak
        if seconds > SECONDS:
            outcome, detail = "too slow", f"{seconds:.1f} s"
        return kind, outcome, detail[:300], seconds, peak - self.before


def _work(numbers: mp.Queue, answers: mp.SimpleQueue, files: dict[str, bytes], seed: int) -> None:
    """Read inputs of these numbers until there are no more."""
    reader = Reader(files, seed)
    while (number := numbers.get()) is not None:
        answers.put(("begin", number, reader.names[number % len(reader.names)]))
        answers.put(("end", number, *reader.read(number)))


def run_here(inputs: int, seed: int, keep: str | None, only: str) -> tuple[Counter[str], list[str]]:
    """The same in this process, which is several times as fast; a crash ends it."""
    reader = Reader({kind: content for kind, content in seeds().items() if kind.startswith(only)}, seed)
    counts: Counter[str] = Counter()
    faults: list[str] = []
    slowest, largest = 0.0, 0
    for number in range(inputs):
        kind, outcome, detail, seconds, memory = reader.read(number)
        slowest, largest = max(slowest, seconds), max(largest, memory)
        counts[outcome] += 1
        counts[f"{kind}: {outcome}"] += 1
        if outcome not in ("accepted", "refused"):
            faults.append(f"input {number} ({kind}): {outcome}: {detail}")
            print(faults[-1], flush=True)
            if keep:
                Path(keep, f"{seed}-{number}-{kind}").write_bytes(reader.content(number)[1])
        if (number + 1) % 10000 == 0:
            print(f"{number + 1} inputs, {len(faults)} faults", flush=True)
    counts["slowest, milliseconds"], counts["most memory, MB"] = round(1000 * slowest), largest >> 20
    return counts, faults


def run(
    inputs: int, seed: int, keep: str | None = None, verbose: bool = False, only: str = ""
) -> tuple[Counter[str], list[str]]:
    """Read so many mutated files, `only` of kinds that begin so; returns counts of the outcomes, and a line for each fault."""
    import queue

    context = mp.get_context("spawn")
    files = {kind: content for kind, content in seeds().items() if kind.startswith(only)}
    names = sorted(files)
    counts: Counter[str] = Counter()
    faults: list[str] = []
    slowest, largest = 0.0, 0
    done, process = 0, None
    while done < inputs:
        numbers, answers = context.Queue(), context.Queue()
        process = context.Process(target=_work, args=(numbers, answers, files, seed), daemon=True)
        process.start()
        given, first, waiting = done, True, None
        while done < inputs:
            while given < min(inputs, done + 200):
                numbers.put(given)
                given += 1
            try:
                answer = answers.get(timeout=120 if first else 2 * SECONDS)
            except queue.Empty:
                answer = None
                # A process that is gone has crashed; one that says nothing is too slow.
            first = False
            if answer is None:
                outcome = "crash" if not process.is_alive() else "too slow"
                kind = names[done % len(names)] if waiting is None else waiting
                counts[outcome] += 1
                counts[f"{kind}: {outcome}"] += 1
                faults.append(f"input {done} ({kind}): {outcome}, exit code {process.exitcode}")
                done += 1
                process.kill()
                break
            if answer[0] == "begin":
                waiting = answer[2]
                continue
            _, number, kind, outcome, detail, seconds, memory = answer
            slowest, largest, done, waiting = max(slowest, seconds), max(largest, memory), number + 1, None
            counts[outcome] += 1
            counts[f"{kind}: {outcome}"] += 1
            if outcome not in ("accepted", "refused"):
                faults.append(f"input {number} ({kind}): {outcome}: {detail}")
                if keep:
                    content = mutate(kind, files[kind], random.Random(f"{seed} {number}"))
                    Path(keep, f"{number}-{kind}").write_bytes(content)
            if verbose and done % 10000 == 0:
                print(f"{done} inputs, {len(faults)} faults", flush=True)
        else:
            numbers.put(None)
            process.join(10)
            if process.is_alive():
                process.kill()
    counts["slowest, milliseconds"], counts["most memory, MB"] = round(1000 * slowest), largest >> 20
    return counts, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--here", action="store_true", help="read them in this process: faster, and a crash is the end of it"
    )
    parser.add_argument("--only", default="", help="how the kinds of files begin that are read (default: all)")
    parser.add_argument("--keep", help="folder for the files that faults are found in")
    args = parser.parse_args()
    started = time.perf_counter()
    if args.here:
        counts, faults = run_here(args.inputs, args.seed, args.keep, args.only)
    else:
        counts, faults = run(args.inputs, args.seed, args.keep, verbose=True, only=args.only)
    for line in faults[:200]:
        print(line)
    for name in sorted(counts, key=lambda name: (":" in name, name)):
        print(f"{name:40} {counts[name]}")
    print(
        f"{args.inputs} inputs in {time.perf_counter() - started:.0f} s: {counts['accepted']} accepted, {counts['refused']} "
        f"refused, {counts['crash']} crashes, {counts['wrong class']} wrong classes, {counts['too much memory']} over 1 GB, "
        f"{counts['too slow']} over 5 s"
    )
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
