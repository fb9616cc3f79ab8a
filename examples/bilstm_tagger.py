"""A BiLSTM tagger with a structured last layer: by hinge, by log loss, and its last layer trained again to a certificate.

On the chunks of CoNLL-2000 where the data is there (MAXMARGIN_DATA, see docs/data-formats.md), else on generated sentences. The
network is small: words and their last three letters, one LSTM each way, a linear layer and the chain. `ChainSVM` then trains
the linear layer and the chain on the frozen outputs of the LSTM, and says how far from the optimum it can be at most.

Needs PyTorch: pip install 'maxmargin[torch]'

python examples/bilstm_tagger.py --epochs 3
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn

import maxmargin as mm
from maxmargin.reporting.chunks import chunk_scores
from maxmargin.torch import ChainLayer


def generated(rng, n):
    """Sentences of made-up words, whose ending tells the tag up to the neighbours."""
    tags, sentences = [], []
    for _ in range(n):
        states, length = [], rng.integers(5, 20)
        while len(states) < length:
            kind = rng.choice(["NP", "VP"])
            size = min(int(rng.integers(1, 4)), length - len(states))
            states += ([f"B-{kind}"] + [f"I-{kind}"] * (size - 1)) if rng.random() < 0.8 else ["O"]
        tags.append(states)
        ends = {
            "O": ["al"],
            "B-NP": ["ion", "er"],
            "I-NP": ["er", "ion", "ed"],
            "B-VP": ["ed", "ing"],
            "I-VP": ["ing", "al"],
        }
        sentences.append(["".join(rng.choice(list("bdgklmnprst"), 3)) + rng.choice(ends[tag]) for tag in states])
    return sentences, tags


def load():
    if os.environ.get("MAXMARGIN_DATA"):
        train, test = (mm.fetch_conll2000(subset=part) for part in ("train", "test"))
        return "CoNLL-2000", words_and_tags(train), words_and_tags(test)
    rng = np.random.default_rng(0)
    return "generated sentences", generated(rng, 800), generated(rng, 300)


def words_and_tags(given):
    sentences, tags = given
    return [[position if isinstance(position, str) else position[0] for position in one] for one in sentences], tags


class Tagger(nn.Module):
    def __init__(self, n_words, n_endings, tags, width=64):
        super().__init__()
        self.words, self.endings = nn.Embedding(n_words, width), nn.Embedding(n_endings, 32)
        self.lstm = nn.LSTM(width + 32, width, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * width, len(tags))
        self.chain = ChainLayer(len(tags), bio=tags)

    def features(self, words, endings):
        return self.lstm(torch.cat([self.words(words), self.endings(endings)], 2))[0]

    def forward(self, words, endings):
        return self.linear(self.features(words, endings))


class Numbers:
    """Words, endings and tags by number; 0 is padding, and 1 what was not seen."""

    def __init__(self, sentences, tags):
        self.tags = sorted({tag for one in tags for tag in one})
        self.words = {w: k + 2 for k, w in enumerate(sorted({w.lower() for one in sentences for w in one}))}
        self.endings = {e: k + 2 for k, e in enumerate(sorted({w.lower()[-3:] for one in sentences for w in one}))}
        self.tag = {tag: k for k, tag in enumerate(self.tags)}

    def batch(self, sentences, tags):
        shape = (len(sentences), max(map(len, sentences)))
        words, endings, labels = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
        for m, (one, y) in enumerate(zip(sentences, tags, strict=True)):
            words[m, : len(one)] = torch.tensor([self.words.get(w.lower(), 1) for w in one])
            endings[m, : len(one)] = torch.tensor([self.endings.get(w.lower()[-3:], 1) for w in one])
            labels[m, : len(one)] = torch.tensor([self.tag.get(t, 0) for t in y])
        return words, endings, labels, words > 0


def batches(sentences, tags, numbers, size):
    """Sentences of like lengths together."""
    order = sorted(range(len(sentences)), key=lambda m: len(sentences[m]))
    for first in range(0, len(order), size):
        rows = order[first : first + size]
        yield rows, numbers.batch([sentences[m] for m in rows], [tags[m] for m in rows])


def train(kind, data, numbers, epochs):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    tagger = Tagger(len(numbers.words) + 2, len(numbers.endings) + 2, numbers.tags)
    optimiser = torch.optim.Adam(tagger.parameters(), 3e-3)
    parts = [batch for _, batch in batches(*data, numbers, 32)]
    for _ in range(epochs):
        for k in rng.permutation(len(parts)):
            words, endings, labels, mask = parts[k]
            # Some words are hidden, so that those that were not seen have a vector, too.
            words = torch.where((torch.rand(words.shape) < 0.1) & mask, 1, words)
            loss = tagger.chain.loss(tagger(words, endings), labels, mask, kind, cost="count", reduction="token")
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(tagger.parameters(), 5.0)
            optimiser.step()
    return tagger


@torch.no_grad()
def predict(tagger, data, numbers):
    found = [None] * len(data[0])
    for rows, (words, endings, _, mask) in batches(*data, numbers, 128):
        for m, tags in zip(rows, tagger.chain.decode(tagger(words, endings), mask), strict=True):
            found[m] = [numbers.tags[k] for k in tags]
    return found


@torch.no_grad()
def frozen(tagger, data, numbers):
    """What the LSTM says of each word, a matrix a sentence."""
    found = [None] * len(data[0])
    for rows, (words, endings, _, mask) in batches(*data, numbers, 128):
        outputs, lengths = tagger.features(words, endings).numpy(), mask.sum(1).tolist()
        for m, matrix, n in zip(rows, outputs, lengths, strict=True):
            found[m] = matrix[:n]
    return found


def report(name, truth, found, seconds):
    right = np.mean([a == b for y, z in zip(truth, found, strict=True) for a, b in zip(y, z, strict=True)])
    print(
        f"{name:32} accuracy {right:.4f}   F1 of chunks {chunk_scores(truth, found).overall.f1:.4f}   {seconds:6.1f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--C", type=float, default=100.0)
    parser.add_argument("--sentences", type=int, default=None, help="train on the first of them alone")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    name, data, test = load()
    data = data[0][: options.sentences], data[1][: options.sentences]
    numbers = Numbers(*data)
    print(
        f"{name}: {len(data[0])} sentences to learn from, {len(test[0])} to test on, {len(numbers.tags)} tags",
        flush=True,
    )
    for kind in ("log", "hinge"):
        begin = time.perf_counter()
        tagger = train(kind, data, numbers, options.epochs)
        report(
            f"{kind} loss, {options.epochs} epochs",
            test[1],
            predict(tagger, test, numbers),
            time.perf_counter() - begin,
        )

    begin = time.perf_counter()
    model = mm.ChainSVM(C=options.C, bio=True).fit(frozen(tagger, data, numbers), data[1])
    seconds = time.perf_counter() - begin
    report(
        "its last layer, by ChainSVM", test[1], [list(y) for y in model.predict(frozen(tagger, test, numbers))], seconds
    )
    print(model.result_.summary())
    # The weights go back into the network.
    tagger.chain, tagger.linear = ChainLayer.from_svm(model, torch.float32)
    report("the same in the network", test[1], predict(tagger, test, numbers), seconds)


if __name__ == "__main__":
    main()
