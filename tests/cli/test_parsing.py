"""The command line on trees: what is read, trained, predicted, compared and described."""

import gzip
import json
import re
import zipfile

import pytest

from maxmargin.cli import names
from maxmargin.cli.main import run
from maxmargin.estimators.loading import TASKS, load
from maxmargin.estimators.parser import ParserSVM
from maxmargin.parsing.brackets import bracket_scores
from maxmargin.parsing.treebank import read_trees
from maxmargin.parsing.trees import Tree
from parsing.test_forests import TREEBANK

#: As in Penn files: an outer bracket, functions, a trace, several lines.
PENN = [f"( {line.replace('(S (NP ', '(S (NP-SBJ-1 ', 1)})\n" for line in TREEBANK]
PENN[0] = PENN[0].replace("(VP ", "\n  (NP-TMP (-NONE- *T*-1)) (VP ", 1)
OPTIONS = ("-C", "10", "--markov", "1", "--quiet")


@pytest.fixture(autouse=True)
def no_debugging(monkeypatch):
    monkeypatch.delenv("MAXMARGIN_DEBUG", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parsing")
    for name in ("bank.mrg", "bank.ptb", "bank.brackets", "bank.dat"):
        (folder / name).write_text("".join(PENN))
    (folder / "bank.mrg.gz").write_bytes(gzip.compress("".join(PENN).encode()))
    with zipfile.ZipFile(folder / "bank.zip", "w") as archive:
        archive.writestr("wsj/one.mrg", "".join(PENN[:4]))
        archive.writestr("wsj/two.mrg", "".join(PENN[4:]))
        archive.writestr("README", "no trees here (")
    sentences = [*(Tree.parse(line).words() for line in TREEBANK[:3]), ["with", "with"]]
    (folder / "new.txt").write_text("\n".join(map(" ".join, sentences)) + "\n")
    assert run(["train", str(folder / "bank.mrg"), *OPTIONS, "-o", str(folder / "bank.mm")]) == 0
    return folder


def answer(capsys, *line, code=0):
    assert run([str(word) for word in (*line, "--json")]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, code, sentence, *line):
    assert run([str(word) for word in line]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(sentence, err), err
    assert err.startswith("maxmargin: ")


def test_help_knows_parsers(capsys):
    assert list(names.TASKS) == list(TASKS)
    assert run(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in ("--markov", "--parent", "--min-count", "--span-features", "--unparsable", "--max-words", "parser"):
        assert option in text
    from maxmargin.parsing.forests import LOSSES, SPAN_FEATURES

    assert ", ".join(SPAN_FEATURES) in text
    assert all(loss in text for loss in LOSSES)


# ------------------------------------------------------------------------------------------------- train


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bank.mrg", ()),
        ("bank.mrg", ("--task", "parser")),
        ("bank.ptb", ()),
        ("bank.brackets", ()),
        ("bank.mrg.gz", ()),
        ("bank.zip", ()),
        ("bank.dat", ("--format", "trees")),
    ],
)
def test_the_same_model_as_from_trees(folder, tmp_path, capsys, name, options):
    found = answer(capsys, "train", folder / name, *OPTIONS, *options, "-o", tmp_path / "a.mm")
    trees = [Tree.parse(line) for line in TREEBANK]
    model = ParserSVM(C=10, markov=1).fit(trees)
    assert (found["task"], found["n_examples"], found["status"]) == ("parser", 7, "CONVERGED")
    assert found["n_weights"] == len(model.coef_)
    assert found["n_binary_rules"] == len(model.grammar_.binary)
    loaded = load(tmp_path / "a.mm")
    assert loaded.coef_.tobytes() == model.coef_.tobytes()
    assert loaded.grammar_.rule_names() == model.grammar_.rule_names()


def test_options_reach_the_parser(folder, tmp_path, capsys):
    line = ["train", folder / "bank.mrg", "--quiet", "-C", "2", "--parent", "--min-count", "1", "--unparsable", "skip"]
    line += ["--span-features", "length,split", "--loss", "zero-one", "--solver", "one-slack", "--max-words", "7"]
    found = answer(capsys, *line, "-o", tmp_path / "a.mm")
    model = load(tmp_path / "a.mm")
    expected = {
        "C": 2.0,
        "parent": True,
        "min_count": 1,
        "unparsable": "skip",
        "loss": "zero-one",
        "solver": "one-slack",
    }
    assert {name: model.get_params()[name] for name in expected} == expected
    assert tuple(model.span_features) == ("length", "split")
    assert model.markov is None
    assert found["n_examples"] == sum(len(Tree.parse(line).words()) <= 7 for line in TREEBANK) < 7


def test_training_says_what_there_is(folder, capsys):
    assert run([*map(str, ["train", folder / "bank.mrg", *OPTIONS, "--test", folder / "bank.mrg"])]) == 0
    out = capsys.readouterr().out
    model = load(folder / "bank.mm")
    g = model.grammar_
    assert f"7 trees, {len(g.symbols)} symbols, {len(g.words)} words" in out
    assert f"{len(g.binary)} binary rules, {len(g.unary)} unary rules, {len(g.lexical)} lexical rules" in out
    assert "solver       bcfw: a chart takes longer than a step" in out
    assert "inference    cky (exact)" in out
    trees = list(read_trees(folder / "bank.mrg", remove_traces=True, remove_functions=True))
    assert re.search(rf"(?m)^bracket F1 +{model.score(trees):.4f}$", out)


# ------------------------------------------------------------------------------------------------- predict, evaluate, info


def test_predict_prints_trees(folder, tmp_path, capsys):
    model = load(folder / "bank.mm")
    sentences = [line.split() for line in (folder / "new.txt").read_text().splitlines()]
    expected = [str(tree) for tree in model.predict(sentences[:3])]
    assert run(["predict", str(folder / "bank.mm"), str(folder / "new.txt")]) == 0
    out, err = capsys.readouterr()
    assert out == "\n".join([*expected, "", ""])
    assert "maxmargin: 1 of 4 sentences have no parse under the grammar." in err
    found = answer(capsys, "predict", folder / "bank.mm", folder / "new.txt")
    assert found["predictions"] == [*expected, None]
    assert found["scores"] == [*model.decision_function(sentences[:3]).tolist(), None]
    # Of trees, the words are parsed.
    path = tmp_path / "out.mrg"
    assert run(["predict", str(folder / "bank.mm"), str(folder / "bank.zip"), "-o", str(path)]) == 0
    assert list(read_trees(path)) == model.predict([Tree.parse(line).words() for line in TREEBANK])
    (tmp_path / "new.words").write_text((folder / "new.txt").read_text())
    again = answer(capsys, "predict", folder / "bank.mm", tmp_path / "new.words", "--format", "sentences")
    assert again == found


def test_evaluate(folder, capsys):
    trees = [Tree.parse(line) for line in TREEBANK]
    scores = bracket_scores(trees, load(folder / "bank.mm").predict([tree.words() for tree in trees]))
    found = answer(capsys, "evaluate", folder / "bank.mm", folder / "bank.mrg")
    assert found["n_examples"] == 7
    assert found["bracket_precision"] == scores.precision
    assert found["bracket_recall"] == scores.recall
    assert found["bracket_f1"] == scores.f1 > 0.8
    assert (found["exact_match"], found["tag_accuracy"]) == (scores.exact_match, scores.tag_accuracy)
    assert found["unparsed"] == 0.0
    assert run(["evaluate", str(folder / "bank.mm"), str(folder / "bank.mrg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "bracket precision",
        "bracket recall",
        "bracket F1",
        "exact match",
        "tag accuracy",
        "sentences without a parse",
    ]
    assert lines[2].endswith(f"{scores.f1:.4f}")


def test_info(folder, capsys):
    model = load(folder / "bank.mm")
    found = answer(capsys, "info", folder / "bank.mm")
    assert (found["task"], found["roots"]) == ("parser", ["S"])
    assert found["sizes"]["lexical_rules"] == len(model.grammar_.lexical)
    assert found["sizes"]["weights"] == len(model.coef_)
    assert found["strongest_rules"] == dict(model.top_rules(5))
    assert run(["info", str(folder / "bank.mm")]) == 0
    assert f"binary_rules {len(model.grammar_.binary)}" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(S (NP (NNP Kim))", "bad.mrg, line 1, column 1: the tree that begins here is never closed"),
        ("(S (NNP Kim)))", "bad.mrg, line 1, column 14: this bracket closes nothing"),
        ("(S\n ())", "bad.mrg, line 2, column 2: The bracket .* is empty"),
        ("( (S (-NONE- *)))", "bad.mrg, line 1, column 1: nothing but traces is in this tree"),
        ("", "bad.mrg has no trees"),
    ],
)
def test_bad_trees(folder, tmp_path, capsys, text, sentence):
    (tmp_path / "bad.mrg").write_text(text)
    for command in (["train"], ["predict", folder / "bank.mm"], ["evaluate", folder / "bank.mm"]):
        refused(capsys, 3, sentence, *command, tmp_path / "bad.mrg")


def test_what_does_not_fit_is_refused(folder, tmp_path, capsys):
    bank, model = folder / "bank.mrg", folder / "bank.mm"
    refused(capsys, 2, "holds parser data, but --task is chain", "train", bank, "--task", "chain")
    for option in (["--kernel", "rbf"], ["--inference", "trees"], ["--no-intercept"], ["--degree", "2"]):
        refused(capsys, 2, f"{option[0]} is for features, which trees have none of", "train", bank, *option)
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n")
    for option in (["--markov", "1"], ["--parent"], ["--min-count", "2"], ["--unparsable", "skip"]):
        refused(capsys, 2, f"{option[0]} is for trees, and this is binary data", "train", tmp_path / "a.svm", *option)
    refused(capsys, 2, "--max-words is for trees", "train", tmp_path / "a.svm", "--max-words", "3")
    refused(capsys, 2, "--markov needs DATA", "train", "--markov", "1")
    refused(capsys, 2, "--features is for words, which", "train", bank, "--features", "words")
    refused(capsys, 2, "loss='hamming' is not known", "train", bank, "--loss", "hamming")
    refused(capsys, 2, "span_features=.* is not possible", "train", bank, "--span-features", "middle")
    refused(capsys, 3, "none of at most 1 words", "train", bank, "--max-words", "1")
    refused(capsys, 3, "a parser learns from trees", "train", folder / "new.txt", "--format", "sentences")
    refused(
        capsys, 3, "new.txt has no labels to compare with: trees are missing", "evaluate", model, folder / "new.txt"
    )
    refused(
        capsys,
        3,
        "holds binary data|holds multi-label data",
        "predict",
        model,
        tmp_path / "a.svm",
        "--format",
        "libsvm",
    )
    line = ["train", bank, "--min-count", "2", "--markov", "1", "--quiet"]
    refused(capsys, 3, r'Example \d: .* Use unparsable="skip"', *line)
    with pytest.warns(RuntimeWarning, match=r"Example \d: .* It is left out"):
        assert answer(capsys, *line, "--unparsable", "skip")["status"] == "CONVERGED"
    (tmp_path / "empty.txt").write_text("")
    refused(capsys, 3, "empty.txt has no sentences", "predict", model, tmp_path / "empty.txt")
