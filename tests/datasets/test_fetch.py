"""Where data sets are looked for, and what becomes of a download that is good, wrong, large, cut or led astray."""

import bz2
import hashlib
import http.server
import lzma
import threading
from pathlib import Path

import numpy as np
import pytest

from maxmargin import datasets
from maxmargin.datasets import fetch
from maxmargin.errors import DataError, OptionError
from maxmargin.formats.graphs import GraphData, write_graphs


def mulan(n_labels, value=0):
    labels = "".join(f"@attribute L{i} {{0,1}}\n" for i in range(n_labels))
    row = ",".join([str(value)] + ["1"] * n_labels)
    return f"@relation r\n@attribute a numeric\n{labels}@data\n{row}\n".encode()


@pytest.fixture
def server():
    """Serve `pages`, a dict of path to (status, headers, content), on this machine."""
    pages = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, content = pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for key, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", pages
        running.shutdown()
        thread.join()


@pytest.fixture
def local(server, monkeypatch):
    """Let yeast's training file come from the local server, over http, with a given checksum."""
    address, pages = server
    original = fetch._download
    monkeypatch.setattr(fetch, "_download", lambda file, target: original(file, target, scheme="http"))

    def publish(content, sha256=None, path="/yeast", headers=None, status=200):
        pages[path] = (status, headers or {}, content)
        file = fetch._File("yeast/yeast-train.arff", address + path, sha256 or hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(fetch._FILES, ("yeast", "train"), file)

    return publish


def test_download_is_kept_and_then_found(tmp_path, local):
    local(mulan(14, 3))
    home = tmp_path / "not" / "yet"
    assert datasets.fetch_yeast(home).X.item() == 3
    assert (home / "yeast" / "yeast-train.arff").read_bytes() == mulan(14, 3)
    local(b"gone", status=404)
    assert datasets.fetch_yeast(home).Y.shape == (1, 14)


def test_checksum_is_of_the_decompressed_content(tmp_path, local):
    content = mulan(14, 5)
    local(bz2.compress(content), hashlib.sha256(content).hexdigest(), path="/yeast.arff.bz2")
    assert datasets.fetch_yeast(tmp_path).X.item() == 5
    assert (tmp_path / "yeast" / "yeast-train.arff.bz2").is_file()


@pytest.mark.parametrize(
    ("content", "options", "match"),
    [
        (mulan(14), {"sha256": "0" * 64}, r"has the SHA-256 [0-9a-f]{64}; expected 0{64}. Nothing was kept"),
        (bz2.compress(mulan(14))[:-9], {}, "is truncated or corrupt .*nothing was kept"),
        (mulan(14), {"status": 500}, r"failed \(HTTP Error 500.* put its content at .*yeast-train.arff"),
        (mulan(14), {"headers": {"Content-Length": "9999"}}, "SHA-256|failed"),
        (b"x" * 3000, {}, "larger than 2000 bytes; nothing was kept"),
        (lzma.compress(bytes(3000)), {}, "larger than 2000 bytes; nothing was kept"),
    ],
)
def test_bad_downloads_leave_nothing(tmp_path, local, monkeypatch, content, options, match):
    monkeypatch.setattr(fetch, "_MAX_DOWNLOAD_BYTES", 2000)
    if options.get("headers"):
        options = options | {"sha256": "0" * 64}
    local(content, **options)
    with pytest.raises(DataError, match=match):
        datasets.fetch_yeast(tmp_path)
    assert not list(tmp_path.iterdir())


def test_redirects(tmp_path, local):
    content = mulan(14, 7)
    local(content, path="/there")
    local(b"", hashlib.sha256(content).hexdigest(), path="/here", headers={"Location": "/there"}, status=302)
    assert datasets.fetch_yeast(tmp_path / "a").X.item() == 7
    local(b"", path="/astray", headers={"Location": "ftp://127.0.0.1/x"}, status=302)
    with pytest.raises(DataError, match=r"redirects to ftp://127.0.0.1/x, which is not http"):
        datasets.fetch_yeast(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_only_https(tmp_path):
    file = fetch._File("a", "http://127.0.0.1:9/a", "")
    with pytest.raises(DataError, match=r"http://127.0.0.1:9/a is refused: expected https"):
        fetch._download(file, tmp_path / "a")
    assert all(file.url.startswith("https://") for file in fetch._FILES.values())


def test_unreachable_server(tmp_path):
    file = fetch._File("a", "http://127.0.0.1:1/a", "")
    with pytest.raises(DataError, match=r"The download of http://127.0.0.1:1/a failed .* put its content at"):
        fetch._download(file, tmp_path / "a", scheme="http")


def test_download_not_allowed(tmp_path):
    with pytest.raises(DataError, match=r"scene-test.arff \(or .xz, .gz, .bz2\) of the data set scene is not there"):
        datasets.fetch_scene(tmp_path, "test", download=False)


@pytest.mark.parametrize(
    ("fetcher", "stem", "n_labels"),
    [
        (datasets.fetch_yeast, "yeast/yeast", 14),
        (datasets.fetch_scene, "scene/scene", 6),
        (datasets.fetch_tmc2007, "tmc2007/tmc2007-500", 22),
        (datasets.fetch_bibtex, "bibtex/bibtex", 159),
    ],
)
def test_mulan_sets(tmp_path, fetcher, stem, n_labels):
    (tmp_path / stem).parent.mkdir()
    (tmp_path / f"{stem}-train.arff").write_bytes(mulan(n_labels, 1))
    (tmp_path / f"{stem}-test.arff.xz").write_bytes(lzma.compress(mulan(n_labels, 2)))
    assert fetcher(tmp_path).X.item() == 1
    test = fetcher(tmp_path, subset="test", download=False)
    assert test.X.item() == 2
    assert test.Y.shape == (1, n_labels)
    with pytest.raises(OptionError, match="subset is 'all'; expected 'train' or 'test'"):
        fetcher(tmp_path, subset="all")


def test_rcv1_labels_are_ranked_on_the_training_set(tmp_path):
    (tmp_path / "rcv1subset1").mkdir()
    (tmp_path / "rcv1subset1" / "train.svm").write_text("100,3 1:1\n100,3 2:1\n100,7,5 47236:1\n")
    (tmp_path / "rcv1subset1" / "test.svm.bz2").write_bytes(bz2.compress(b"0,5 1:1\n0,7,100 2:1\n"))
    data = datasets.fetch_rcv1subset1(tmp_path)
    assert data.X.shape == (3, 47236)
    assert data.label_names == [str(i) for i in range(101)]
    train = datasets.fetch_rcv1subset1(tmp_path, n_labels=3)
    test = datasets.fetch_rcv1subset1(tmp_path, "test", n_labels=3)
    assert train.label_names == test.label_names == ["3", "5", "100"]  # 5 and 7 tie
    np.testing.assert_array_equal(train.Y, [[1, 0, 1], [1, 0, 1], [0, 1, 1]])
    np.testing.assert_array_equal(test.Y, [[0, 1, 0], [0, 0, 1]])
    with pytest.raises(OptionError, match="n_labels is 102; expected 1 to 101"):
        datasets.fetch_rcv1subset1(tmp_path, n_labels=102)
    # The test set's first example has none of the two most frequent labels.
    kept = datasets.fetch_rcv1subset1(tmp_path, "test", n_labels=2, drop_unlabelled=True)
    assert kept.X.shape == (1, 47236)
    assert kept.Y.tolist() == [[0, 1]]


def test_msrc21(tmp_path):
    with pytest.raises(DataError, match=r"msrc21 cannot be downloaded; put the file at .*msrc21_slic200.npz"):
        datasets.fetch_msrc21(200, tmp_path)
    (tmp_path / "msrc21").mkdir()
    path = tmp_path / "msrc21" / "msrc21_slic80.npz"
    graph = (np.ones((2, 3)), np.array([[0, 1]]), np.ones((1, 1)))
    write_graphs(path, GraphData([graph] * 3, [np.array([0, i]) for i in range(3)], ["a", "b", "c"]))
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, split=np.array([2, 0, 1]), **arrays)
    for subset, label in {"train": 1, "validation": 2, "test": 0}.items():
        data = datasets.fetch_msrc21(80, tmp_path, subset)
        assert len(data.graphs) == 1
        assert data.labels[0][1] == label
    with pytest.raises(OptionError, match="superpixels is 100; expected 80 or 200"):
        datasets.fetch_msrc21(100, tmp_path)
    with pytest.raises(OptionError, match="subset is 'all'"):
        datasets.fetch_msrc21(80, tmp_path, "all")


def test_where_data_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("MAXMARGIN_DATA", str(tmp_path / "env"))
    assert fetch.data_directory(tmp_path) == tmp_path
    assert fetch.data_directory(None) == tmp_path / "env"
    monkeypatch.delenv("MAXMARGIN_DATA")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for platform, variable, default in [
        ("linux", "XDG_CACHE_HOME", tmp_path / ".cache"),
        ("win32", "LOCALAPPDATA", tmp_path / "AppData" / "Local"),
    ]:
        monkeypatch.setattr(fetch.sys, "platform", platform)
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
        assert fetch.data_directory(None) == tmp_path / "cache" / "maxmargin"
        monkeypatch.delenv(variable)
        assert fetch.data_directory(None) == default / "maxmargin"
    monkeypatch.setattr(fetch.sys, "platform", "darwin")
    assert fetch.data_directory(None) == tmp_path / "Library" / "Caches" / "maxmargin"
