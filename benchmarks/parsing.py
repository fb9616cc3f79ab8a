"""Exact CKY: operations and sentences a second at 10, 20 and 40 words, threads, where the time goes, plain Python beside it.

    python benchmarks/parsing.py [--data-home DIR] [--part speed threads profile python training] [--markov 1]

With the treebank sample (treebank-sample/treebank.zip) the grammar is that of all its trees without traces and functions;
without data it is a random one of that size. An *operation* is a (span, split, binary rule): a chart that leaves nothing out has
n (n^2 - 1) / 6 times the number of binary rules of them. Ours skips those whose parts do not exist, so its rate counts work
that was avoided; the figure to compare with other parsers is sentences a second. Weights are log probabilities.

Times are those of the processor, but for threads.

- *speed*: the best tree, the two best, the best with the bracket loss, and inside-outside, one thread.
- *threads*: two threads against one, runs that alternate.
- *profile*: the same sentences with ever more of the work.
- *python*: dictionaries in plain Python on the same grammar, whose scores must be equal; NLTK's ViterbiParser, if it is there.
- *training*: seconds of one pass of the max-oracle over all trees of at most 15 words, as in Cutting, section 5.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import time

import numpy as np

from maxmargin.parsing.forests import SPAN_FEATURES, ParseForests
from maxmargin.parsing.grammar import Grammar, induce, pcfg_weights
from maxmargin.parsing.treebank import read_trees, without_functions, without_traces

LENGTHS = (10, 20, 40)


def treebank(data_home):
    path = pathlib.Path(data_home) / "treebank-sample" / "treebank.zip"
    found = (without_traces(tree) for tree in read_trees(path))
    return [without_functions(tree) for tree in found if tree is not None]


def random_grammar(rng, n_symbols=400, n_tags=45, n_binary=4000, n_unary=100, n_words=3000):
    """About the size of a treebank's; every symbol is somewhere on the left, so that most sentences have a parse."""
    left = rng.integers(0, n_symbols, n_binary)
    right = rng.integers(0, n_symbols, n_binary)
    parent = rng.integers(n_tags, n_symbols, n_binary)
    binary = np.unique(np.stack([parent, left, right], axis=1), axis=0)
    unary = np.unique(
        np.stack([rng.integers(n_tags, n_symbols, n_unary), rng.integers(0, n_symbols, n_unary)], axis=1), axis=0
    )
    lexical = np.unique(
        np.stack([rng.integers(0, n_tags, 2 * n_words), np.arange(2 * n_words) % n_words], axis=1), axis=0
    )
    words = [f"w{t}" for t in range(n_words)]
    symbols = [f"s{a}" for a in range(n_symbols)]
    return Grammar(symbols, words, [], binary, unary, lexical, np.arange(n_tags, n_symbols))


def timed(function, repeats):
    """Seconds of the processor of each of some runs, which other programs disturb less than the clock's."""
    function()
    out = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        out.append(time.process_time() - begin)
    return np.array(out)


def plain_cky(grammar, rules, tokens, w):
    """The best score with dictionaries, looking at left parts, then at the rules of the left symbol."""
    n, top = len(tokens), {}
    by_left, by_bottom, by_token = rules
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j, bottom = i + length, {}
            if length == 1:
                for tag, rule in by_token.get(tokens[i], ()):
                    bottom[tag] = w[rule]
            for k in range(i + 1, j):
                rights = top[k, j]
                for b, x in top[i, k].items():
                    for c, a, rule in by_left.get(b, ()):
                        y = rights.get(c)
                        if y is not None:
                            score = x + y + w[rule]
                            if score > bottom.get(a, -np.inf):
                                bottom[a] = score
            out = dict(bottom)
            for c, x in bottom.items():
                for a, rule in by_bottom.get(c, ()):
                    if x + w[rule] > out.get(a, -np.inf):
                        out[a] = x + w[rule]
            top[i, j] = out
    return max((top[0, n].get(root, -np.inf) for root in grammar.roots.tolist()), default=-np.inf)


def rule_tables(grammar):
    by_left, by_bottom, by_token = {}, {}, {}
    rule = 0
    for a, b, c in grammar.binary.tolist():
        by_left.setdefault(b, []).append((c, a, rule))
        rule += 1
    for a, c in grammar.unary.tolist():
        by_bottom.setdefault(c, []).append((a, rule))
        rule += 1
    for tag, token in grammar.lexical.tolist():
        by_token.setdefault(token, []).append((tag, rule))
        rule += 1
    return by_left, by_bottom, by_token


def nltk_parser(grammar, weights):
    """NLTK's parser with the same rules; chains are plain unary rules there."""
    from nltk import Nonterminal, ViterbiParser
    from nltk.grammar import PCFG, ProbabilisticProduction

    left = np.concatenate([grammar.binary[:, 0], grammar.unary[:, 0], grammar.lexical[:, 0]])
    p = np.where(np.isfinite(weights), np.exp(weights), 0.0) + 1e-12
    p /= np.bincount(left, p)[left]
    s = [Nonterminal(f"N{a}") for a in range(len(grammar.symbols))]
    bodies = [(s[b], s[c]) for _, b, c in grammar.binary.tolist()] + [(s[c],) for _, c in grammar.unary.tolist()]
    bodies += [(str(token),) for _, token in grammar.lexical.tolist()]
    productions = [
        ProbabilisticProduction(s[a], body, prob=q)
        for a, body, q in zip(left.tolist(), bodies, p.tolist(), strict=True)
    ]
    made = ViterbiParser(PCFG(s[int(grammar.roots[0])], productions))
    # Newer versions give up after some seconds otherwise.
    made._max_time = None
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--part", nargs="+", default=["speed", "threads", "profile", "python", "training"])
    parser.add_argument("--markov", type=int, help="memory of hidden symbols; all of it by default")
    parser.add_argument("--sentences", type=int, default=20, help="sentences of each length")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--nltk", type=int, default=1, help="sentences of 10 words for NLTK, which takes minutes for each"
    )
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    trees = None
    if options.data_home is None:
        grammar = random_grammar(rng)
        weights = -rng.exponential(3.0, grammar.n_rules)
        groups = {n: list(rng.integers(0, grammar.n_tokens, (options.sentences, n))) for n in LENGTHS}
    else:
        trees = treebank(options.data_home)
        grammar, counts = induce(trees, markov=options.markov)
        weights = pcfg_weights(grammar, counts)
        words = [tree.words() for tree in trees]
        groups = {n: [one for one in words if len(one) == n][: options.sentences] for n in LENGTHS}
    n_binary = len(grammar.binary)
    print(
        f"{len(grammar.symbols)} symbols, {n_binary} binary, {len(grammar.unary)} unary, {len(grammar.lexical)} lexical rules"
    )
    problems = {n: ParseForests(grammar, group) for n, group in groups.items()}
    operations = {n: n * (n * n - 1) / 6 * n_binary for n in LENGTHS}

    if "speed" in options.part:
        print(f"\n{'one thread, medians':24}" + "".join(f"{n:>6} words: sentences/s  billion op/s" for n in LENGTHS))
        for name, run in (
            ("best", lambda p: p.parse(weights)),
            ("two best", lambda p: p.parse(weights, 2)),
            ("with bracket loss", lambda p: p.parser.best(p.sentences, weights, units=np.full(p.n_examples, 0.1))),
            ("inside-outside", lambda p: p.marginals(weights)),
        ):
            line = f"{name:24}"
            for n, p in problems.items():
                seconds = float(np.median(timed(lambda p=p, run=run: run(p), options.repeats))) / p.n_examples
                line += f"{1.0 / seconds:24.1f} {operations[n] / seconds / 1e9:13.2f}"
            print(line)

    if "threads" in options.part:
        print("\ntwo threads against one")
        for n, p in problems.items():
            ratios = []
            for repeat in range(options.repeats + 1):
                taken = {}
                for jobs in (1, 2) if repeat % 2 else (2, 1):
                    begin = time.perf_counter()
                    p.parse(weights, n_jobs=jobs)
                    taken[jobs] = time.perf_counter() - begin
                ratios.append(taken[1] / taken[2])
            # The first run compiles.
            ratios = np.array(ratios[1:])
            print(f"{n:4} words: {np.median(ratios):.2f} ({ratios.min():.2f} - {ratios.max():.2f})")

    if "profile" in options.part:
        print("\nmilliseconds a sentence" + "".join(f"{n:>10} words" for n in LENGTHS))
        rows = {}
        for n, p in problems.items():
            rules = p.parser.rules
            w, ms = weights, 1e3 / p.n_examples
            # Without roots nothing is read off.
            p.parser.rules = rules._replace(roots=rules.roots[:0])
            rows.setdefault("chart", []).append(ms * np.median(timed(lambda p=p, w=w: p.parse(w), options.repeats)))
            p.parser.rules = rules
            rows.setdefault("+ best tree", []).append(
                ms * np.median(timed(lambda p=p, w=w: p.parse(w), options.repeats))
            )
            rows.setdefault("+ second best", []).append(
                ms * np.median(timed(lambda p=p, w=w: p.parse(w, 2), options.repeats))
            )
            q = ParseForests(grammar, groups[n], span_features=SPAN_FEATURES)
            more = np.concatenate([weights, np.zeros(q.n_weights - grammar.n_rules)])
            rows.setdefault("best tree, features", []).append(
                ms * np.median(timed(lambda q=q, more=more: q.parse(more), options.repeats))
            )
            for name, pruning in (("beam 8", {"beam": 8.0}), ("coarse 1e-4", {"coarse": 1e-4})):
                q = ParseForests(grammar, groups[n], **pruning)
                rows.setdefault(f"best tree, {name}", []).append(
                    ms * np.median(timed(lambda q=q, w=w: q.parse(w), options.repeats))
                )
        for name, line in rows.items():
            print(f"{name:23}" + "".join(f"{value:16.2f}" for value in line))

    if "python" in options.part:
        tables, w = rule_tables(grammar), weights.tolist()
        print()
        for n, several in ((10, 5), (20, 2)):
            p = ParseForests(grammar, groups[n][:several])
            ours = float(np.median(timed(lambda p=p: p.parse(weights), options.repeats)))
            found = p.parse(weights).values[:, 0]
            begin = time.process_time()
            ends = p.sentences.start
            scores = [
                plain_cky(grammar, tables, p.sentences.token[ends[m] : ends[m + 1]].tolist(), w) for m in range(several)
            ]
            theirs = time.process_time() - begin
            np.testing.assert_allclose(found, scores, rtol=1e-10)
            print(f"plain Python, {n} words: {theirs / several:.3f} s a sentence, {theirs / ours:.0f} times as long")
        try:
            other = nltk_parser(grammar, weights)
        except ImportError:
            print("NLTK is not there.")
        else:
            p = ParseForests(grammar, sorted(groups[10], key=len)[: options.nltk])
            ours = float(np.median(timed(lambda p=p: p.parse(weights), options.repeats)))
            ends, begin = p.sentences.start, time.process_time()
            for m in range(p.n_examples):
                list(other.parse([str(token) for token in p.sentences.token[ends[m] : ends[m + 1]]]))
            theirs = time.process_time() - begin
            print(f"NLTK, 10 words: {theirs / p.n_examples:.1f} s a sentence, {theirs / ours:.0f} times as long")

    if "training" in options.part and trees is not None:
        short = [tree for tree in trees if len(tree.words()) <= 15]
        own, _ = induce(short, markov=options.markov)
        for loss in ("brackets", "zero-one"):
            oracle = ParseForests(own, None, short, loss).max_oracle()
            w = np.zeros(oracle.n_weights)
            oracle.mean_plane(w, 1)
            begin = time.perf_counter()
            oracle.mean_plane(w, 1)
            seconds = time.perf_counter() - begin
            print(f"one pass over {len(short)} trees of at most 15 words, {loss}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
