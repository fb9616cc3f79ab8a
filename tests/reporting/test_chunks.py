"""Chunks as conlleval counts them: by hand, and against a walk over the tags one by one, as that program does it."""

import numpy as np
import pytest

from maxmargin.errors import DataError
from maxmargin.reporting.chunks import ChunkScore, are_chunk_tags, chunk_scores


def counts(truth, predicted):
    score = chunk_scores([truth.split()], [predicted.split()]).overall
    return score.n_true, score.n_predicted, score.n_right


@pytest.mark.parametrize(
    ("truth", "predicted", "expected"),
    [
        ("B-NP I-NP O B-VP", "B-NP I-NP O B-VP", (2, 2, 2)),
        ("B-NP I-NP", "B-NP B-NP", (1, 2, 0)),
        ("B-NP I-NP", "B-NP O", (1, 1, 0)),
        ("B-NP O", "B-NP I-NP", (1, 1, 0)),
        # The same words under another type.
        ("B-NP I-NP", "B-VP I-VP", (1, 1, 0)),
        # I without B: after O, at the beginning of a sentence, and after another type.
        ("O B-NP I-NP", "O I-NP I-NP", (1, 1, 1)),
        ("B-NP I-NP O", "I-NP I-NP O", (1, 1, 1)),
        ("B-NP B-VP", "B-NP I-VP", (2, 2, 2)),
        ("B-NP I-VP I-VP", "I-NP B-VP I-VP", (2, 2, 2)),
        # A B in the midst of a chunk begins another of the same type.
        ("I-NP B-NP I-NP", "I-NP I-NP I-NP", (2, 1, 0)),
        ("I-NP B-NP", "B-NP B-NP", (2, 2, 2)),
        # The type changes and changes back.
        ("I-A I-B I-A", "B-A B-B B-A", (3, 3, 3)),
        # The second of two is right though the first is not.
        ("B-NP I-NP B-NP", "B-NP B-NP B-NP", (2, 3, 1)),
        ("O O", "O O", (0, 0, 0)),
        ("O O", "B-NP O", (0, 1, 0)),
        ("B I O B", "I I O I", (2, 2, 2)),
        ("B-A-B I-A-B", "B-A-B I-A", (1, 2, 0)),
    ],
)
def test_by_hand(truth, predicted, expected):
    assert counts(truth, predicted) == expected


def test_sentences_end_chunks():
    scores = chunk_scores([["B-NP"], [], ["I-NP", "I-NP"], []], [["B-NP"], [], ["I-NP", "O"], []])
    assert scores.overall == ChunkScore(2, 2, 1)
    assert scores.accuracy == pytest.approx(2 / 3)


def begins(before, tag):
    """conlleval's startOfChunk, for a tag and the one before it."""
    (one, of), (two, to) = before, tag
    return (one, two) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")} or (two != "O" and of != to)


def ends(before, tag):
    """conlleval's endOfChunk: whether a chunk ends before the tag."""
    (one, of), (two, to) = before, tag
    return (one, two) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")} or (one != "O" and of != to)


def walk(truth, predicted):
    """conlleval's loop over words, with an O between sentences."""
    found = {}
    inside, before = False, (("O", ""), ("O", ""))
    for one, other in [
        pair for rows in zip(truth, predicted, strict=True) for pair in [*zip(*rows, strict=True), ("O", "O")]
    ]:
        now = tuple((tag[0], tag[2:]) for tag in (one, other))
        if inside:
            over = [ends(*pair) for pair in zip(before, now, strict=True)]
            if all(over) and before[0][1] == before[1][1]:
                inside = False
                found.setdefault(before[0][1], [0, 0, 0])[2] += 1
            elif over[0] != over[1] or now[0][1] != now[1][1]:
                inside = False
        starts = [begins(*pair) for pair in zip(before, now, strict=True)]
        if all(starts) and now[0][1] == now[1][1]:
            inside = True
        for k in range(2):
            if starts[k]:
                found.setdefault(now[k][1], [0, 0, 0])[k] += 1
        before = now
    return found


@pytest.mark.parametrize("seed", range(30))
def test_against_a_walk(seed):
    rng = np.random.default_rng(seed)
    tags = ["O", "B-A", "I-A", "B-B", "I-B", "I-C"] if seed % 2 else ["O", "B", "I"]
    truth = [rng.choice(tags, rng.integers(1, 12)).tolist() for _ in range(30)]
    # Mostly the truth, so that long chunks are right now and then.
    predicted = [[tag if rng.random() < 0.8 else str(rng.choice(tags)) for tag in row] for row in truth]
    scores = chunk_scores(truth, predicted)
    expected = walk(truth, predicted)
    assert {kind: [s.n_true, s.n_predicted, s.n_right] for kind, s in scores.by_type.items()} == expected
    assert list(scores.by_type) == sorted(expected)
    total = np.sum(list(expected.values()), axis=0)
    assert scores.overall == ChunkScore(*total.tolist())
    assert total[2] > 10
    assert scores.n_tokens == sum(map(len, truth))
    assert scores.accuracy == np.mean(np.concatenate(truth) == np.concatenate(predicted))


def test_figures():
    score = ChunkScore(459, 539, 371)
    assert (score.precision, score.recall) == (371 / 539, 371 / 459)
    assert score.f1 == pytest.approx(2 * score.precision * score.recall / (score.precision + score.recall))
    # The line that the shared task's page gives for these numbers.
    assert str(score) == "precision:  68.83%; recall:  80.83%; FB1:  74.35"
    nothing = ChunkScore(0, 0, 0)
    assert (nothing.precision, nothing.recall, nothing.f1) == (0, 0, 0)


def test_the_text_is_that_of_conlleval():
    truth, predicted = [["B-NP", "I-NP", "B-VP", "O"]], [["B-NP", "I-NP", "B-PP", "O"]]
    assert str(chunk_scores(truth, predicted)).split("\n") == [
        "processed 4 tokens with 2 phrases; found: 2 phrases; correct: 1.",
        "accuracy:  75.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00",
        "               NP: precision: 100.00%; recall: 100.00%; FB1: 100.00  1",
        "               PP: precision:   0.00%; recall:   0.00%; FB1:   0.00  1",
        "               VP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0",
    ]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "B-X"], True),
        (["O", "I"], True),
        (["O", "B-X", "I-"], True),
        (["O"], False),
        (["B-X", "I-X"], False),
        (["O", "B-X", "E-X"], False),
        (["O", "Bx"], False),
        (["O", "B-X", None], False),
        ([0, 1], False),
        ([], False),
    ],
)
def test_which_tags_are_chunks(tags, expected):
    assert are_chunk_tags(tags) is expected


def test_bad_input():
    with pytest.raises(DataError, match="There are 2 sentences, but predictions for 1"):
        chunk_scores([["O"], ["O"]], [["O"]])
    with pytest.raises(DataError, match="Sentence 1 has 2 tags, but 1 predicted ones"):
        chunk_scores([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(DataError, match="The truth of sentence 2 is 'E-NP' at position 1; expected O, B or I"):
        chunk_scores([["O"], [], ["O", "E-NP"]], [["O"], [], ["O", "O"]])
    with pytest.raises(DataError, match="The prediction of sentence 1 is None at position 0"):
        chunk_scores([["O"], ["O"]], [["O"], [None]])
