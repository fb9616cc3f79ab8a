"""TextFeatures against a plain loop over positions that writes every feature down; the ready settings; what is refused."""

import itertools

import numpy as np
import pytest
from sklearn.base import clone

from maxmargin.errors import DataError, OptionError
from maxmargin.features import TextFeatures, Vectoriser

WORDS = ["the", "The", "cat", "U.S.", "x-ray", "1,000", "a", "Straße", "naïve", "IBM", "1990s", "a|b", "w=v", "12"]
TAGS = ["DT", "NN", "VB", "#", "|"]


def sentences(seed, tagged=False, n=25):
    rng = np.random.default_rng(seed)

    def token():
        word = str(rng.choice(WORDS)) + ("" if rng.random() < 0.7 else str(rng.choice(["s", "ing", "S"])))
        return (word, str(rng.choice(TAGS))) if tagged else word

    return [[token() for _ in range(rng.integers(1, 7))] for _ in range(n)]


def shape(word):
    kinds = ["X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word]
    return "".join(k for k, before in zip(kinds, [None, *kinds], strict=False) if k != before)


def of_word(name, word, lowercase):
    """An attribute that is computed from a word, or None."""
    if name == "shape":
        return shape(word)
    if name == "length":
        return str(len(word))
    if name == "lower":
        return word.lower()
    n, read = int(name[6:]), word.lower() if lowercase else word
    if len(word) < n:
        return None
    return read[:n] if name.startswith("prefix") else read[len(read) - n :]


def by_hand(sentence, templates, columns, lowercase=False):
    """The features of each position as lists of names; a template is a list of (attribute, distance)."""
    rows = []
    for t in range(len(sentence)):
        row = []
        for template in templates:
            values, titles = [], []
            for name, distance in template:
                titles.append(name if distance == 0 and name not in columns else f"{name}[{distance}]")
                if not 0 <= t + distance < len(sentence):
                    break
                token = sentence[t + distance]
                entries = dict(zip(columns, [token] if isinstance(token, str) else token, strict=True))
                word = entries[columns[0]]
                if lowercase:
                    entries[columns[0]] = word.lower()
                values.append(entries[name] if name in entries else of_word(name, word, lowercase))
            if len(values) == len(template) and None not in values:
                row.append(f"{'|'.join(titles)}={'|'.join(values)}")
        rows.append(row)
    return rows


def check(text, train, test, templates):
    """Names and matrices are those of the names written down, read by a Vectoriser."""
    columns = list(text.columns)
    expected = Vectoriser(text.min_count, text.n_hash)
    written = [[by_hand(one, templates, columns, text.lowercase) for one in part] for part in (train, test)]
    matrix = expected.fit_transform(written[0])
    found = text.fit_transform(train)
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), matrix.toarray())
    if text.n_hash is None:
        assert text.feature_names_.tolist() == expected.feature_names_.tolist()
        unseen = {name for rows in written[1] for row in rows for name in row} - set(text.feature_names_)
        assert unseen
    np.testing.assert_array_equal(text.transform(test).toarray(), expected.transform(written[1]).toarray())


def singles(names, span):
    return [[(name, k)] for name in names for k in range(-span, span + 1)]


def affixes(n, span=0):
    return singles([f"{kind}{k}" for kind in ("prefix", "suffix") for k in range(1, n + 1)], span)


@pytest.mark.parametrize(
    ("options", "templates"),
    [
        ({}, [*singles(["word"], 2), *affixes(4), *singles(["shape"], 0)]),
        ({"window": 0, "prefixes": 0, "suffixes": 0}, [*singles(["word", "shape"], 0)]),
        (
            {"window": 1, "prefixes": 2, "suffixes": 2, "affix_window": 1, "length": True},
            [*singles(["word"], 1), *affixes(2, 1), *singles(["shape", "length"], 1)],
        ),
        ({"lowercase": True}, [*singles(["word"], 2), *affixes(4), *singles(["shape"], 0)]),
        (
            {"window": 0, "prefixes": 0, "suffixes": 0, "shape": False, "bigrams": 2},
            [[("word", 0)], *([("word", k), ("word", k + 1)] for k in range(-2, 2))],
        ),
        (
            {
                "prefixes": 0,
                "suffixes": 0,
                "shape": False,
                "templates": ["lower[-7]|shape[2]|length", "prefix3[+1]", "word[0]"],
            },
            [*singles(["word"], 2), [("lower", -7), ("shape", 2), ("length", 0)], [("prefix3", 1)]],
        ),
    ],
)
@pytest.mark.parametrize("extra", [{}, {"min_count": 3}, {"n_hash": 50}])
def test_words_against_a_plain_loop(options, templates, extra):
    check(TextFeatures(**options, **extra), sentences(0), sentences(1), templates)


def test_columns_against_a_plain_loop():
    text = TextFeatures(columns=("form", "pos"), window=1, prefixes=1, suffixes=0, bigrams=1, lowercase=True)
    templates = [
        *singles(["form", "pos"], 1),
        [("prefix1", 0)],
        [("shape", 0)],
        *([(column, k), (column, k + 1)] for column in ("form", "pos") for k in (-1, 0)),
    ]
    check(text, sentences(2, tagged=True), sentences(3, tagged=True), templates)


def test_the_setting_for_chunks_is_the_usual_one():
    templates = [
        *singles(["word", "pos"], 2),
        [("word", -1), ("word", 0)],
        [("word", 0), ("word", 1)],
        *([("pos", k), ("pos", k + 1)] for k in (-2, -1, 0, 1)),
        *([("pos", k), ("pos", k + 1), ("pos", k + 2)] for k in (-2, -1, 0)),
    ]
    assert len(templates) == 19
    check(TextFeatures.chunking(), sentences(4, tagged=True), sentences(5, tagged=True), templates)
    assert TextFeatures.chunking(min_count=2).min_count == 2


def test_the_setting_for_tags_is_the_papers():
    templates = [*singles(["word", "length"], 1), *affixes(10, 1)]
    check(TextFeatures.tagging(), sentences(6), sentences(7), templates)


def test_readable_names():
    text = TextFeatures.chunking(suffixes=3, window=1).fit([[("the", "DT"), ("king", "NN"), ("left", "VB")]])
    names = set(text.feature_names_)
    assert {"word[-1]=the", "suffix3=ing", "pos[0]|pos[1]=DT|NN", "pos[-2]|pos[-1]|pos[0]=DT|NN|VB"} <= names
    assert TextFeatures(window=0, prefixes=0, suffixes=0, bigrams=1).template_names() == [
        "word[0]",
        "shape",
        "word[-1]|word[0]",
        "word[0]|word[1]",
    ]


def test_windows_end_with_their_sentence():
    apart, together = [["a", "b"], ["c"]], [["a", "b", "c"]]
    text = TextFeatures(window=5, prefixes=0, suffixes=0, shape=False, bigrams=3)
    assert text.fit(apart).feature_names_.tolist() == [
        "word[-1]=a", "word[-1]|word[0]=a|b", "word[0]=a", "word[0]=b", "word[0]=c", "word[0]|word[1]=a|b", "word[1]=b",
    ]  # fmt: skip
    assert len(text.fit(together).feature_names_) == 15


def test_a_sentence_alone_is_read_as_among_others():
    text = TextFeatures().fit(sentences(0))
    test = sentences(8)
    whole, at = text.transform(test), 0
    for sentence in test:
        alone = text.transform([sentence])
        np.testing.assert_array_equal(alone.toarray(), whole[at : at + len(sentence)].toarray())
        at += len(sentence)


def test_clone_and_deep_parameters():
    text = TextFeatures(window=1, templates=["word[-1]|word[0]"])
    copy = clone(text).set_params(window=3)
    assert (text.window, copy.window, copy.templates) == (1, 3, ["word[-1]|word[0]"])


def test_no_features_at_all():
    with pytest.raises(DataError, match="No feature occurs"):
        TextFeatures(window=0, prefixes=0, suffixes=9, shape=False, columns=["w"], templates=[], min_count=9).fit(
            [["a"]]
        )


@pytest.mark.parametrize(
    ("options", "X", "sentence"),
    [
        ({}, [], "There is no sequence: the data is empty"),
        ({}, ["the cat"], "Sequence 0 is 'the cat'; expected a list of positions"),
        ({}, [["the"], []], "Sequence 1 is empty"),
        ({}, [["the"], ["cat", 3]], r"Sequence 1: position 1 is 3; expected a word, since columns=\['word'\]"),
        ({}, [[("the", "DT")]], r"Sequence 0: position 0 is \('the', 'DT'\); expected a word"),
        ({"columns": ("word", "pos")}, [["the"]], "Sequence 0: position 0 is 'the'; expected a tuple of 2 strings"),
        (
            {"columns": ("word", "pos")},
            [[("a", "b"), ("c",)]],
            r"Sequence 0: position 1 is \('c',\); expected a tuple of 2",
        ),
        (
            {"columns": ("word", "pos")},
            [[("a", "b"), ("c", 1)]],
            "Sequence 0: position 1 has the pos 1; expected a string",
        ),
    ],
)
def test_bad_data_is_a_sentence(options, X, sentence):
    with pytest.raises(DataError, match=sentence):
        TextFeatures(**options).fit(X)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window": -1}, "window=-1 is not possible; it must be a whole number from 0 on"),
        ({"prefixes": 1.5}, "prefixes=1.5 is not possible"),
        ({"shape": 1}, "shape=1 is not possible; it must be True or False"),
        ({"columns": "word"}, "columns='word' is not possible; it must be a list of strings"),
        ({"columns": ()}, r"columns=\(\) is not possible; it must be a list of names that differ"),
        ({"columns": ("a", "a")}, "names that differ"),
        ({"columns": ("a", "shape")}, "columns has the name 'shape', which is taken"),
        ({"columns": ("a", "x[1]")}, "columns has the name .*bracket"),
        ({"templates": "word[0]"}, "templates='word\\[0\\]' is not possible"),
        (
            {"templates": ["pos[0]"]},
            r"templates has 'pos\[0\]'; expected attributes such as .* the columns word, or prefixN",
        ),
        ({"templates": ["word[0]|"]}, "templates has"),
        ({"templates": ["word[x]"]}, "templates has"),
        ({"min_count": 0}, "min_count=0 is not possible"),
    ],
)
def test_bad_options_are_a_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        TextFeatures(**options).fit([["a"]])


def test_every_template_reads_what_it_says():
    """One sentence of distinct words, so that every value tells its position."""
    words = [f"w{k}" for k in range(6)]
    text = TextFeatures(window=5, prefixes=0, suffixes=0, shape=False)
    matrix = text.fit_transform([words]).toarray()
    for t, distance in itertools.product(range(6), range(-5, 6)):
        there = {name for name, value in zip(text.feature_names_, matrix[t], strict=True) if value}
        expected = {f"word[{distance}]=w{t + distance}"} if 0 <= t + distance < 6 else set()
        assert {name for name in there if name.startswith(f"word[{distance}]=")} == expected
