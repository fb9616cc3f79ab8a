"""Tagged tokens and texts with entities, as JSON."""

import gzip
import json

import pytest

from maxmargin.errors import DataError
from maxmargin.formats import read_spacy_json, read_token_json

LINES = [{"tokens": ["Ada", "lives"], "tags": ["B-PER", "O"]}, {"id": 7, "tokens": ["Hm"], "tags": ["O"]}]


def written(tmp_path, lines, name="t.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines) + "\n")
    return path


def test_lines_and_arrays(tmp_path):
    expected = ([[("Ada",), ("lives",)], [("Hm",)]], [["B-PER", "O"], ["O"]])
    assert read_token_json(written(tmp_path, ["", LINES[0], "", LINES[1]])) == expected
    assert read_token_json(written(tmp_path, [json.dumps(LINES, indent=1)], "t.json")) == expected
    assert read_token_json(written(tmp_path, [json.dumps(LINES)], "t.json")) == expected
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(map(json.dumps, LINES)).encode()))
    assert read_token_json(packed) == expected


def test_numbers_with_names_as_on_the_hub(tmp_path):
    path = written(tmp_path, [{"id": "0", "tokens": ["EU", "rejects"], "ner_tags": [3, 0]}])
    assert read_token_json(path)[1] == [[3, 0]]
    assert read_token_json(path, ["O", "B-PER", "I-PER", "B-ORG"])[1] == [["B-ORG", "O"]]
    with pytest.raises(DataError, match=r"line 1: 'ner_tags' holds 3; there are names for 0 to 1"):
        read_token_json(path, ["O", "B-PER"])
    assert read_token_json(written(tmp_path, [{"tokens": ["a"]}]))[1] == []
    with pytest.raises(DataError, match=r"line 1: there are no tags; expected one of 'tags'"):
        read_token_json(written(tmp_path, [{"tokens": ["a"]}]), tagged=True)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([LINES[0], '{"tokens": ["a"], "tags": ['], r"t\.jsonl, line 2, column \d+: this is no JSON"),
        ([LINES[0], "", "nonsense"], r"line 3, column 1: this is no JSON"),
        (
            [LINES[0], {"tokens": ["a"]}],
            r"line 2: 'tags' is 'null'; expected an array with one for each of the 1 tokens",
        ),
        (
            [{"tokens": ["a", "b"], "tags": ["O"]}],
            r"line 1: 'tags' is 1 tags; expected an array with one for each of the 2",
        ),
        ([{"tokens": ["a", 3], "tags": ["O", "O"]}], r"line 1: 'tokens' holds '3'; expected strings"),
        ([{"tokens": []}], r"line 1: 'tokens' holds nothing"),
        ([{"tokens": ["a"], "tags": [1.5]}], r"'tags' holds '1\.5'; expected strings, or whole numbers"),
        ([{"words": ["a"]}], r"line 1: .* expected an object with the array 'tokens'"),
        ([""], r"there is nothing in the file"),
    ],
)
def test_the_broken_line_is_named(tmp_path, lines, sentence):
    with pytest.raises(DataError, match=sentence):
        read_token_json(written(tmp_path, lines))


TEXT = "Ada Lovelace met Mr. Babbage."
TAGS = ["B-PER", "I-PER", "O", "O", "O", "B-PER", "O"]


@pytest.mark.parametrize(
    "value",
    [
        {"text": TEXT, "entities": [[0, 12, "PER"], [21, 28, "PER"]]},
        {"text": TEXT, "ents": [{"start": 21, "end": 28, "label": "PER"}, {"start": 0, "end": 12, "label": "PER"}]},
        [TEXT, {"entities": [[0, 12, "PER"], [21, 28, "PER"]]}],
    ],
)
def test_entities_become_tags_and_come_back(tmp_path, value):
    data = read_spacy_json(written(tmp_path, [value]))
    assert data.sentences == [[(word,) for word in ["Ada", "Lovelace", "met", "Mr", ".", "Babbage", "."]]]
    assert data.tags == [TAGS]
    assert data.entities(data.tags) == [[(0, 12, "PER"), (21, 28, "PER")]]
    assert data.entities([["I-A", "I-A", "I-B", "O", "B-A", "B-A", "I-A"]]) == [
        [(0, 12, "A"), (13, 16, "B"), (19, 20, "A"), (21, 29, "A")]
    ]


def test_tokens_of_the_text_and_the_older_training_file(tmp_path):
    tokens = [{"id": k, "start": a, "end": b} for k, (a, b) in enumerate([(0, 12), (13, 16), (17, 29)])]
    value = {"text": TEXT, "tokens": tokens, "ents": [{"start": 0, "end": 12, "label": "PER"}]}
    data = read_spacy_json(written(tmp_path, [value]))
    assert data.sentences == [[("Ada Lovelace",), ("met",), ("Mr. Babbage.",)]]
    assert data.tags == [["B-PER", "O", "O"]]
    old = [("Ada", "B-PER"), ("Lovelace", "L-PER"), ("met", "O"), ("Babbage", "U-PER")]
    sentence = {"tokens": [{"id": k, "orth": word, "ner": ner} for k, (word, ner) in enumerate(old)]}
    data = read_spacy_json(written(tmp_path, [json.dumps([{"id": 0, "paragraphs": [{"sentences": [sentence]}]}])]))
    assert data.tags == [["B-PER", "I-PER", "O", "B-PER"]]
    assert data.entities(data.tags) == [[(0, 12, "PER"), (17, 24, "PER")]]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            [{"text": TEXT, "entities": [[0, 2, "PER"]]}],
            r"line 1: the entity from 0 to 2 \(PER\) begins or ends within a word",
        ),
        (
            [{"text": TEXT, "entities": [[0, 99, "PER"]]}],
            r"expected \[first, end, label\] within the text of 29 characters",
        ),
        ([{"text": TEXT, "entities": [[0, 12, "A"], [4, 16, "B"]]}], r"the entity from 4 to 16 \(B\) overlaps"),
        ([{"text": TEXT, "entities": []}, {"text": "a"}], r"line 2: there is no 'entities'"),
        (
            [{"text": "a"}, {"text": TEXT, "entities": []}],
            r"line 2: there are 'entities', which texts before do not have",
        ),
        ([{"text": "a"}, {"paragraphs": []}], r"line 2: there are 'entities', which texts before do not have"),
        ([{"text": "  ", "entities": []}], r"line 1: the text '  ' has no words"),
        ([{"no": 1}], r"expected an object with 'text' and 'entities'"),
        ([{"paragraphs": [{"sentences": [{"tokens": [{"orth": "a", "ner": "X-A"}]}]}]}], r"'ner' is 'X-A'"),
    ],
)
def test_what_is_refused_of_texts(tmp_path, lines, sentence):
    with pytest.raises(DataError, match=sentence):
        read_spacy_json(written(tmp_path, lines))
