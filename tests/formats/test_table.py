"""Tables: what is read, and which cell is refused."""

import gzip

import numpy as np
import pytest
from scipy.sparse import issparse

from maxmargin.errors import DataError, OptionError
from maxmargin.formats import read_table

CSV = 'age,colour,"a, b",y\n30,red,1.5,yes\n\n40,blue,-2,no\n50,red,true,yes\n'


def written(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_columns_of_numbers_and_of_text(tmp_path):
    table = read_table(written(tmp_path, CSV))
    assert list(table.columns) == ["age", "colour", "a, b", "y"]
    assert table.columns["age"].tolist() == [30, 40, 50]
    assert table.columns["a, b"].tolist() == [1.5, -2.0, 1.0]
    assert table.columns["colour"] == ["red", "blue", "red"]
    assert table.lines.tolist() == [2, 4, 5]
    X, names = table.features(["y"])
    assert names == ["age", "colour=blue", "colour=red", "a, b"]
    assert issparse(X)
    assert X.toarray().tolist() == [[30, 0, 1, 1.5], [40, 1, 0, -2], [50, 0, 1, 1]]
    assert table.classes("y") == ["yes", "no", "yes"]


def test_numbers_alone_are_a_dense_matrix_in_any_order(tmp_path):
    table = read_table(written(tmp_path, "b;a\n1;2\n3;4\n"))
    X, names = table.features()
    assert names == ["b", "a"]
    assert X.tolist() == [[1, 2], [3, 4]]
    assert table.named_features(["a", "b"]).tolist() == [[2, 1], [4, 3]]


def test_features_of_another_table(tmp_path):
    train = read_table(written(tmp_path, CSV))
    _, names = train.features(["y"])
    other = read_table(written(tmp_path, 'colour,extra,"a, b",age\ngreen,1,0,7\nblue,2,1,8\n', "other.csv"))
    assert other.named_features(names).toarray().tolist() == [[7, 0, 0, 0], [8, 1, 0, 1]]
    with pytest.raises(DataError, match=r"has no column 'age' \(feature\); its columns are colour"):
        read_table(written(tmp_path, "colour\nred\n", "few.csv")).named_features(names)
    with pytest.raises(DataError, match=r"line 3, column 'age': 'x' was found where a number was expected"):
        read_table(written(tmp_path, 'age,colour,"a, b"\n1,red,0\nx,red,0\n', "text.csv")).named_features(names)


def test_a_column_that_turns_out_to_be_text_late(tmp_path):
    rows = [str(k) for k in range(9000)] + ["x7"]
    table = read_table(written(tmp_path, "n,m\n" + "".join(f"{one},1\n" for one in rows)))
    assert table.columns["n"] == rows
    assert len(table.columns["m"]) == 9001
    table = read_table(written(tmp_path, "n,m\n" + "".join(f" {one},1\n" for one in reversed(rows))))
    assert table.columns["n"] == rows[::-1]


def test_spaces_around_cells_and_numbers_that_python_alone_reads(tmp_path):
    table = read_table(written(tmp_path, "a, b ,c\n 1 , x ,1_0\n2,y , 3\n"))
    assert table.columns["a"].tolist() == [1, 2]
    assert table.columns["b"] == ["x", "y"]
    assert table.columns["c"] == ["1_0", "3"]


def test_compressed_and_with_tabs_and_quotes(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b'a\tb\n"x\ny"\t1\nz\t2\n'))
    table = read_table(path)
    assert table.columns["a"] == ["x\ny", "z"]
    assert table.lines.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the first line is empty"),
        ("a,b\n", "there are no rows"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells found, but the header names 2 columns"),
        ("a,b\n1,2\n3,\n", r"line 3, column 'b': the value is missing \(''\)"),
        ("a,b\n1,2\n3,NaN\n", r"line 3, column 'b': the value is missing \('NaN'\)"),
        ("a,b\n1,2\n3,inf\n", r"line 3, column 'b': 'inf' is not finite"),
        ("a,b\n1,x\n3,?\n", r"line 3, column 'b': the value is missing"),
        ("a,,c\n1,2,3\n", "line 1: column 2 has no name"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("1,2\n3,4\n", "line 1: 1, 2 are numbers; expected the names of the columns"),
        ('a,b\n"1,2\n', "line 2: this is no row of a table"),
    ],
)
def test_what_is_refused(tmp_path, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_table(written(tmp_path, text))


def test_targets_that_are_none(tmp_path):
    table = read_table(written(tmp_path, "y,z,w\n1,0,0\n2.5,1,3\n"))
    with pytest.raises(DataError, match=r"line 3, column 'y': 2.5 was found where a class was expected"):
        table.classes("y")
    with pytest.raises(DataError, match=r"line 3, column 'w': '3' was found; several targets are label sets"):
        table.label_sets(["z", "w"])
    assert table.label_sets(["z"]).tolist() == [[0], [1]]
    with pytest.raises(DataError, match=r"has no column 'Y1' \(--target\); its columns are y, z, w"):
        table.check_names(["Y1"], "--target")


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {"n": [1, 2], "x": [0.5, -1.0], "flag": [True, False], "word": ["a", "b"]}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**columns, "d": pa.array(["u", "v"]).dictionary_encode()}), path)
    table = read_table(path)
    X, names = table.features(["d"])
    assert names == ["n", "x", "flag", "word=a", "word=b"]
    assert X.toarray().tolist() == [[1, 0.5, 1, 1, 0], [2, -1, 0, 0, 1]]
    assert table.classes("d") == ["u", "v"]
    pq.write_table(pa.table({"n": [1, None]}), path)
    with pytest.raises(DataError, match=r"row 1, column 'n': the value is missing"):
        read_table(path)
    pq.write_table(pa.table({"n": [[1], [2]]}), path)
    with pytest.raises(DataError, match=r"column 'n' holds values of the type list"):
        read_table(path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="is no Parquet file that can be read"):
        read_table(path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(OptionError, match=r"reading Parquet needs pyarrow: pip install 'maxmargin\[table\]'"):
        read_table(tmp_path / "t.parquet")


def test_the_same_matrix_as_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=50), "b": rng.choice(["x", "y", "z"], 50), "c": rng.integers(0, 9, 50)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    X, names = read_table(tmp_path / "t.csv").features()
    expected = pd.get_dummies(frame, prefix_sep="=", dtype=float)
    assert np.array_equal(X.toarray(), expected[names].to_numpy())
