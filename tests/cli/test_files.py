"""The command line on the files people have: tables, JSON lines, images; predictions as JSON lines and CSV."""

import csv
import io
import json
import re
import zipfile

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.errors import DataError


def command(*line):
    return run([str(word) for word in line])


def records(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def answer(capsys, *line):
    assert command(*line, "--json") == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, code, sentence, *line):
    capsys.readouterr()
    assert command(*line) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(sentence, err), err
    assert err.startswith("maxmargin: ")


def table(seed, n, header="id,height,colour,weight,kind,red,blue"):
    rng = np.random.default_rng(seed)
    lines = [header]
    for k in range(n):
        x, colour = rng.normal(size=2).round(3), rng.choice(["red", "blue", "grey"])
        kind = "abc"[int(x[0] > 0) + int(colour == "red")]
        lines.append(f"{k},{x[0]},{colour},{x[1]},{kind},{int(colour == 'red')},{int(colour == 'blue' or x[0] > 1)}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "train.csv").write_text(table(0, 60))
    (folder / "test.csv").write_text(table(1, 30))
    line = ("train", folder / "train.csv", "--target", "kind", "--drop", "id,red,blue", "-C", 100, "--quiet")
    assert command(*line, "-o", folder / "kind.mm") == 0
    line = ("train", folder / "train.csv", "--target", "red,blue", "--drop", "id,kind", "-C", 100, "--quiet")
    assert command(*line, "-o", folder / "colours.mm") == 0
    words = [("the", "D"), ("dog", "N"), ("sees", "V"), ("a", "D"), ("cat", "N")]
    rows = [{"tokens": [w for w, _ in words], "tags": [t for _, t in words]}] * 6
    (folder / "tokens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    numbers = [
        {"id": k, "tokens": row["tokens"], "ner_tags": ["DNV".index(t) for t in row["tags"]]}
        for k, row in enumerate(rows)
    ]
    (folder / "hub.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    people = [("Ada", "London"), ("Ada Byron", "Rome"), ("Eve", "New York"), ("Eve Fox", "Oslo")]
    texts = []
    for name, place in people * 3:
        first = len(name) + 10
        entities = [[0, len(name), "PER"], [first, first + len(place), "LOC"]]
        texts.append({"text": f"{name} lives in {place}.", "entities": entities})
    (folder / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    for name, options in (("tokens", ()), ("hub", ("--label-names", "D,N,V")), ("texts", ())):
        line = ("train", folder / f"{name}.jsonl", *options, "-C", 10, "--quiet", "-o", folder / f"{name}.mm")
        assert command(*line) == 0
    return folder


# ------------------------------------------------------------------------------------------------------------- tables


def test_data_frames_are_compared_with_the_table_of_training(folder):
    pandas = pytest.importorskip("pandas")
    model = mm.load(folder / "kind.mm")
    names = list(model._feature_names)
    frame = pandas.DataFrame(np.eye(len(names)), columns=names)
    assert np.array_equal(model.predict(frame), model.predict(frame.to_numpy()))
    for columns, what in (
        (["tall", *names[1:]], "it has 'tall' and it lacks 'height'"),
        (names[::-1], "they stand in another order"),
    ):
        with pytest.raises(DataError, match=f"other columns than the file .* trained on: {what}"):
            model.predict(pandas.DataFrame(np.eye(len(names)), columns=columns))


def test_a_table_with_one_target(folder, tmp_path, capsys):
    rows = records(folder / "train.csv")
    names = ["height", "colour=blue", "colour=grey", "colour=red", "weight"]
    X = [
        [float(r["height"]), *(float(r["colour"] == c) for c in ("blue", "grey", "red")), float(r["weight"])]
        for r in rows
    ]
    expected = mm.MultiClassSVM(C=100).fit(X, [row["kind"] for row in rows])
    model = mm.load(folder / "kind.mm")
    assert list(model._feature_names) == names
    assert np.allclose(model.coef_, expected.coef_)
    found = answer(capsys, "evaluate", folder / "kind.mm", folder / "test.csv", "--target", "kind")
    test = records(folder / "test.csv")
    Xt = [
        [float(r["height"]), *(float(r["colour"] == c) for c in ("blue", "grey", "red")), float(r["weight"])]
        for r in test
    ]
    assert found["accuracy"] == expected.score(Xt, [row["kind"] for row in test])
    out = tmp_path / "out.csv"
    assert command("predict", folder / "kind.mm", folder / "test.csv", "-o", out) == 0
    assert [row["prediction"] for row in records(out)] == expected.predict(Xt).tolist()
    out = tmp_path / "out.jsonl"
    assert command("predict", folder / "kind.mm", folder / "test.csv", "-o", out) == 0
    first = json.loads(out.read_text().splitlines()[0])
    assert first["prediction"] == expected.predict(Xt[:1])[0]
    assert max(first["scores"], key=first["scores"].get) == first["prediction"]
    capsys.readouterr()
    assert command("predict", folder / "kind.mm", folder / "test.csv") == 0
    assert capsys.readouterr().out.split() == expected.predict(Xt).tolist()


def test_how_text_is_read_is_said(folder, tmp_path, capsys):
    line = ("train", folder / "train.csv", "--target", "kind", "--drop", "id", "-C", 1, "--quiet")
    assert command(*line) == 0
    assert "columns of text, as zeros and ones for each of their values: colour (3)" in capsys.readouterr().err
    new = tmp_path / "new.csv"
    new.write_text("weight,colour,height\n1,green,2\n0,red,1\n")
    assert command("predict", folder / "kind.mm", new) == 0
    assert "column 'colour': 'green' was not in the training data" in capsys.readouterr().err


def test_a_table_with_label_sets(folder, tmp_path, capsys):
    found = answer(capsys, "evaluate", folder / "colours.mm", folder / "test.csv")
    assert found["task"] == "multi-label"
    assert found["hamming_loss"] <= 0.2
    out = tmp_path / "out.csv"
    assert command("predict", folder / "colours.mm", folder / "test.csv", "-o", out) == 0
    predicted = [[int(row["red"]), int(row["blue"])] for row in records(out)]
    truth = [[int(row["red"]), int(row["blue"])] for row in records(folder / "test.csv")]
    assert np.mean(np.array(predicted) != truth) == pytest.approx(found["hamming_loss"])


def test_tables_compressed_from_pipes_and_as_parquet(folder, tmp_path, capsys):
    pa = pytest.importorskip("pyarrow.csv")
    import pyarrow.parquet as pq

    pq.write_table(pa.read_csv(folder / "test.csv"), tmp_path / "test.parquet")
    one = answer(capsys, "evaluate", folder / "kind.mm", tmp_path / "test.parquet", "--target", "kind")
    other = answer(capsys, "evaluate", folder / "kind.mm", folder / "test.csv", "--target", "kind")
    assert one["accuracy"] == other["accuracy"]


def test_sentences_about_tables(folder, tmp_path, capsys):
    train = folder / "train.csv"
    refused(
        capsys,
        2,
        r"is a table: say which column is to be learned by --target; its columns are id, height",
        "train",
        train,
    )
    refused(capsys, 3, r"train\.csv has no column 'kinds' \(--target\); its columns are id, .*Did you mean \"kind\"",
            "train", train, "--target", "kinds")  # fmt: skip
    refused(capsys, 3, r"has no column 'x' \(--drop\)", "train", train, "--target", "kind", "--drop", "x")
    refused(
        capsys, 2, r"'kind' is named by --target and by --drop", "train", train, "--target", "kind", "--drop", "kind"
    )
    refused(
        capsys,
        3,
        r"line 2, column 'height': .* was found where a class was expected",
        "train",
        train,
        "--target",
        "height",
    )
    refused(capsys, 3, r"line 2, column 'id'|column 'id': '2' was found; several targets are label sets",
            "train", train, "--target", "red,id")  # fmt: skip
    refused(
        capsys, 2, r"--target is for a table, which .* does not hold", "train", folder / "tokens.jsonl", "--target", "a"
    )
    (tmp_path / "few.csv").write_text("height,weight\n1,2\n")
    refused(
        capsys,
        3,
        r"few\.csv has no column 'colour=blue' \(feature\)",
        "predict",
        folder / "kind.mm",
        tmp_path / "few.csv",
    )
    refused(capsys, 3, r"has no labels to compare with: the column of the target, which --target names, is missing",
            "evaluate", folder / "kind.mm", folder / "test.csv")  # fmt: skip
    (tmp_path / "odd.csv").write_text("height,weight,colour,kind\n1,2,red,zebra\n")
    refused(
        capsys,
        3,
        r"line 2, column 'kind': 'zebra' is not among the 3 classes",
        "evaluate",
        folder / "kind.mm",
        tmp_path / "odd.csv",
    )
    refused(capsys, 3, r"holds table data, but the model is for the task chain|trained on words",
            "predict", folder / "tokens.mm", folder / "test.csv")  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- JSON


def test_tokens(folder, tmp_path, capsys):
    for name in ("tokens", "hub"):
        more = ("--label-names", "D,N,V") if name == "hub" else ()
        found = answer(capsys, "evaluate", folder / f"{name}.mm", folder / f"{name}.jsonl", *more)
        assert found["tag_accuracy"] == 1.0
    assert command("predict", folder / "tokens.mm", folder / "hub.jsonl") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"tokens": ["the", "dog", "sees", "a", "cat"], "tags": list("DNVDN")}
    assert len(lines) == 6
    # Predictions can be read as data.
    out = tmp_path / "out.jsonl"
    assert command("predict", folder / "tokens.mm", folder / "hub.jsonl", "-o", out) == 0
    assert answer(capsys, "evaluate", folder / "tokens.mm", out)["tag_accuracy"] == 1.0
    out = tmp_path / "out.csv"
    assert command("predict", folder / "tokens.mm", folder / "hub.jsonl", "-o", out) == 0
    assert next(csv.reader(out.read_text().splitlines()[1:])) == ["0", "0", "the", "D"]
    names = tmp_path / "names.txt"
    names.write_text("D\nN\nV\n")
    found = answer(capsys, "evaluate", folder / "hub.mm", folder / "hub.jsonl", "--label-names", names)
    assert found["tag_accuracy"] == 1.0


def test_texts_with_entities(folder, tmp_path, capsys):
    found = answer(capsys, "evaluate", folder / "texts.mm", folder / "texts.jsonl")
    assert found["chunk_f1"] == 1.0
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"text": "Eve Byron lives in Oslo."}\n')
    assert command("predict", folder / "texts.mm", bare) == 0
    assert json.loads(capsys.readouterr().out) == {
        "text": "Eve Byron lives in Oslo.", "entities": [[0, 9, "PER"], [19, 23, "LOC"]]
    }  # fmt: skip
    refused(
        capsys,
        3,
        "has no labels to compare with: the tags or entities are missing",
        "evaluate",
        folder / "texts.mm",
        bare,
    )


def test_sentences_about_json(folder, tmp_path, capsys):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"tokens": ["a"], "tags": ["D"]}\n{"tokens": ["a"], "tags"\n')
    refused(capsys, 3, r"broken\.jsonl, line 2, column \d+: this is no JSON", "train", path)
    path.write_text('{"tokens": ["a"]}\n')
    refused(capsys, 3, "has no tags: there is nothing to learn", "train", path)
    refused(capsys, 3, r"trained on words", "predict", folder / "tokens.mm", folder / "test.csv")
    refused(
        capsys, 3, r"but the model is for the task multi-class", "predict", folder / "kind.mm", folder / "tokens.jsonl"
    )


# ------------------------------------------------------------------------------------------------------------- images


def test_images_and_masks(tmp_path, capsys):
    Image = pytest.importorskip("PIL.Image")
    pytest.importorskip("skimage")
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for name in ("images", "masks"):
            (tmp_path / part / name).mkdir(parents=True)
        for k in range(4):
            bright = np.arange(24) >= rng.integers(8, 16)
            image = (50 + 130 * bright[None, :, None] + rng.integers(0, 60, (24, 24, 3))).astype(np.uint8)
            Image.fromarray(image).save(tmp_path / part / "images" / f"{k}.png")
            mask = np.broadcast_to(np.where(bright, 2, 1), (24, 24)).astype(np.uint8)
            Image.fromarray(mask).save(tmp_path / part / "masks" / f"{k}.png")
    for superpixels in (20, 0):
        more = ("--superpixels", superpixels)
        line = ("train", tmp_path / "train", *more, "-C", 100, "--max-passes", 50, "--quiet", "-o", tmp_path / "m.mm")
        assert command(*line) in (0, 1)
        capsys.readouterr()
        found = answer(capsys, "evaluate", tmp_path / "m.mm", tmp_path / "test", *more)
        assert found["pixel_accuracy"] > 0.9
        out = tmp_path / "out.jsonl"
        assert command("predict", tmp_path / "m.mm", tmp_path / "test", *more, "-o", out) == 0
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert [line["image"] for line in lines] == list("0123")
        assert set(lines[0]["prediction"]) <= {1, 2}
        masks = tmp_path / "masks.zip"
        assert command("predict", tmp_path / "m.mm", tmp_path / "test", *more, "-o", masks) == 0
        with zipfile.ZipFile(masks) as archive:
            predicted = [np.asarray(Image.open(io.BytesIO(archive.read(f"{k}.png")))) for k in range(4)]
        truth = [np.asarray(Image.open(tmp_path / "test" / "masks" / f"{k}.png")) for k in range(4)]
        assert np.mean(np.array(predicted) == np.array(truth)) == pytest.approx(found["pixel_accuracy"])
    refused(capsys, 2, "--superpixels is for images", "train", tmp_path / "m.mm", "--format", "npz", "--superpixels", 3)
    (tmp_path / "bare" / "images").mkdir(parents=True)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "bare" / "images" / "a.png")
    refused(capsys, 3, "has no folder 'masks': there is nothing to learn", "train", tmp_path / "bare")


# ----------------------------------------------------------------------------------------- outputs of the other tasks


def test_outputs_of_graphs_trees_and_rankings(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 2))
    np.savez(tmp_path / "g.npz", X=X, y=(X[:, 0] > 0).astype(int), edges=np.array([[0, 1], [1, 2], [0, 2]]),
             node_ptr=[0, 3, 6], edge_ptr=[0, 2, 3])  # fmt: skip
    (tmp_path / "t.mrg").write_text("(S (A a) (B b))\n(S (B b) (A a))\n")
    (tmp_path / "r.dat").write_text("".join(f"{k % 3} qid:{k // 3 + 1} 1:{k % 3} 2:1\n" for k in range(12)))
    for name, options in (("g.npz", ()), ("t.mrg", ()), ("r.dat", ("--task", "ranking"))):
        assert command("train", tmp_path / name, *options, "-C", 10, "--quiet", "-o", tmp_path / "m.mm") == 0
        for ending in ("jsonl", "csv"):
            assert command("predict", tmp_path / "m.mm", tmp_path / name, "-o", tmp_path / f"o.{ending}") == 0
        lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
        rows = records(tmp_path / "o.csv")
        if name == "g.npz":
            assert [int(row["prediction"]) for row in rows] == [label for line in lines for label in line["prediction"]]
            assert [row["graph"] for row in rows] == list("000111")
        elif name == "t.mrg":
            assert [row["prediction"] for row in rows] == [line["prediction"] for line in lines]
            assert lines[0]["words"] == ["a", "b"]
        else:
            assert [float(row["score"]) for row in rows] == [line["prediction"] for line in lines]
