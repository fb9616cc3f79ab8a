"""Grammars: rules written out by hand, derivations checked span by span, and what enumeration says they generate."""

from collections import Counter

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.parsing.grammar import ROW, Grammar, classes_of, induce, pcfg_weights
from maxmargin.parsing.trees import Tree

BANK = [
    Tree.parse("(S (NP (NP (DT the) (JJ old) (JJ red) (NN dog))) (VP (VBZ barks)) (. .))"),
    Tree.parse("(S (VP (VB run)))"),
    Tree.parse("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBZ sleeps) (ADVP (RB well))))"),
]
BINARISATIONS = [{"markov": markov, "parent": parent} for markov in (None, 0, 1, 2) for parent in (False, True)]


def random_tree(rng, depth=0):
    """A tree of few labels and words, with chains, and with nodes of up to five subtrees."""
    if depth > 4 or rng.random() < 0.25:
        return Tree(f"T{rng.integers(4)}", f"w{rng.integers(30)}")
    n = int(rng.choice([1, 1, 2, 3, 4, 5]))
    return Tree(f"{'ABC'[rng.integers(3)]}", [random_tree(rng, depth + 1) for _ in range(n)])


def bank(seed, n=40):
    rng = np.random.default_rng(seed)
    return [random_tree(rng) for _ in range(n)]


def check_derivation(grammar, words, rows):
    """Read the rows as charts do: every span has at most one chain over a binary or a lexical rule."""
    n_binary, n_lexical = len(grammar.binary), len(grammar.binary) + len(grammar.unary)
    rows = list(rows)

    def derive(begin, end, symbol, may_chain):
        row = rows.pop(0)
        assert [row.begin, row.end, row.symbol] == [begin, end, symbol]
        rule = row.rule
        if rule >= n_lexical:
            tag, token = grammar.lexical[rule - n_lexical]
            assert (end - begin, tag, row.split) == (1, symbol, -1)
            assert token == grammar.tokens(words)[begin]
        elif rule >= n_binary:
            top, bottom = grammar.unary[rule - n_binary]
            assert may_chain
            assert (top, row.split) == (symbol, -1)
            derive(begin, end, bottom, False)
        else:
            parent, left, right = grammar.binary[rule]
            assert parent == symbol
            derive(begin, row.split, left, True)
            derive(row.split, end, right, True)

    root = rows[0].symbol
    assert root in grammar.roots
    derive(0, len(words), root, True)
    assert rows == []


def productions(trees):
    """Label and the labels below it, of all nodes with several subtrees."""
    return {
        (node.label, tuple(child.label for child in node.children))
        for tree in trees
        for node in tree.nodes()
        if len(node.children) > 1
    }


def generated(grammar, label, longest):
    """All sequences of up to `longest` labels that the grammar can put below a node of this label."""
    found = set()

    def expand(symbol, before):
        for parent, left, right in grammar.binary.tolist():
            if parent == symbol and len(before) < longest - 1:
                row = (*before, grammar.labels[left])
                if grammar.hidden[right]:
                    expand(right, row)
                else:
                    found.add((*row, grammar.labels[right]))

    for k, name in enumerate(grammar.labels):
        if name == label and not grammar.hidden[k]:
            expand(k, ())
    return found


def test_rules_by_hand():
    grammar, counts = induce(BANK, min_class=100)
    expected = {
        "NP -> DT NP|<DT>": 2,
        "NP|<DT> -> JJ NP|<DT JJ>": 1,
        "NP|<DT JJ> -> JJ NN": 1,
        "NP|<DT> -> JJ NN": 1,
        "S -> NP S|<NP>": 1,
        "S|<NP> -> VP .": 1,
        "S -> NP VP": 1,
        "VP -> VBZ ADVP": 1,
        "NP => NP": 1,
        "VP => VBZ": 1,
        "ADVP => RB": 1,
        "S => VP => VB": 1,
        "DT -> 'the'": 2,
        "JJ -> 'old'": 2,
        "JJ -> 'red'": 1,
        "NN -> 'dog'": 1,
        "NN -> 'cat'": 1,
        "VBZ -> 'barks'": 1,
        "VBZ -> 'sleeps'": 1,
        "VB -> 'run'": 1,
        "RB -> 'well'": 1,
        ". -> '.'": 1,
        "JJ -> UNK": 1,
        "NN -> UNK": 2,
        "VBZ -> UNK": 2,
        "VB -> UNK": 1,
        "RB -> UNK": 1,
        ". -> UNK": 1,
    }
    assert dict(zip(grammar.rule_names(), counts.tolist(), strict=True)) == expected
    assert [grammar.symbols[k] for k in grammar.roots] == ["S"]
    assert [name for name, hidden in zip(grammar.symbols, grammar.hidden, strict=True) if hidden] == [
        "NP|<DT JJ>", "NP|<DT>", "S|<NP>",
    ]  # fmt: skip
    for rules, order in ((grammar.binary, [1, 2, 0]), (grammar.unary, [1, 0]), (grammar.lexical, [1, 0])):
        assert rules.dtype == np.int32
        assert rules[:, order].tolist() == sorted(rules[:, order].tolist())


def test_names_of_memory_and_parents():
    names = induce(BANK, markov=1, parent=True)[0].rule_names()
    for rule in (
        "NP^NP|<DT> -> JJ NP^NP|<JJ>",
        "NP^S|<DT> -> JJ NN",
        "NP^S => NP^NP",
        "S => VP => VB",
        "S -> NP^S VP^S",
    ):
        assert rule in names
    assert "NP|<> -> JJ NP|<>" in induce(BANK, markov=0)[0].rule_names()


def test_derivation_by_hand():
    grammar, _ = induce(BANK)
    rows = grammar.spans_of(BANK[2])
    names = grammar.rule_names()
    assert [(row.begin, row.end, row.split, names[row.rule]) for row in rows] == [
        (0, 5, 3, "S -> NP VP"),
        (0, 3, 1, "NP -> DT NP|<DT>"),
        (0, 1, -1, "DT -> 'the'"),
        (1, 3, 2, "NP|<DT> -> JJ NN"),
        (1, 2, -1, "JJ -> 'old'"),
        (2, 3, -1, "NN -> 'cat'"),
        (3, 5, 4, "VP -> VBZ ADVP"),
        (3, 4, -1, "VBZ -> 'sleeps'"),
        (4, 5, -1, "ADVP => RB"),
        (4, 5, -1, "RB -> 'well'"),
    ]
    assert rows.dtype == ROW
    np.testing.assert_array_equal(grammar.rules_of(BANK[2]), rows.rule)
    assert grammar.rules_of(BANK[2]).dtype == np.int64


@pytest.mark.parametrize("options", BINARISATIONS)
def test_random_trees(options):
    for seed in range(4):
        trees = bank(seed)
        grammar, counts = induce(trees, rare=0, **options)
        used = np.zeros(grammar.n_rules, int)
        for tree in trees:
            rows = grammar.spans_of(tree)
            check_derivation(grammar, tree.words(), rows)
            assert grammar.build(rows, tree.words()) == tree
            assert grammar.build(rows) == tree
            used += np.bincount(grammar.rules_of(tree), minlength=grammar.n_rules)
        np.testing.assert_array_equal(counts, used)


def test_full_memory_generates_what_was_seen_and_nothing_else():
    trees = bank(7, 20)
    seen = productions(trees)
    sizes = []
    for markov in (None, 2, 1, 0):
        grammar, _ = induce(trees, markov=markov)
        made = {(label, row) for label in "ABC" for row in generated(grammar, label, 5)}
        assert seen <= made
        assert (made == seen) == (markov is None)
        sizes.append(len(made))
    assert sizes == sorted(sizes)
    # The sequence of labels is what counts, also where the same labels could be divided otherwise.
    odd = [Tree.parse("(S (A-B a) (C c) (D d))"), Tree.parse("(S (A a) (B-C b) (E e))")]
    assert generated(induce(odd)[0], "S", 4) == {("A-B", "C", "D"), ("A", "B-C", "E")}


def test_deep_and_flat_trees():
    deep = Tree.parse("(A (B b) " * 5000 + "(B b)" + ")" * 5000)
    chain = Tree.parse("(A " * 5000 + "(B b)" + ")" * 5000)
    flat = Tree.parse("(A" + " (B b)" * 300 + ")")
    for tree in (deep, chain, flat):
        grammar, _ = induce([tree], markov=2)
        assert grammar.build(grammar.spans_of(tree)) == tree


def test_classes_of_words():
    assert classes_of("walking") == ["UNK/a/-ing", "UNK/a/-ng", "UNK/a", "UNK"]
    assert classes_of("Ängste") == ["UNK/Aa/-ste", "UNK/Aa/-te", "UNK/Aa", "UNK"]
    assert classes_of("U.S.") == ["UNK/A.A.", "UNK"]
    assert classes_of("1990s") == ["UNK/9a", "UNK"]
    assert classes_of("1,200.5") == ["UNK/9,9.9", "UNK"]
    assert classes_of("ab") == ["UNK/a", "UNK"]
    assert classes_of("abc") == ["UNK/a", "UNK"]
    assert classes_of("abcd") == ["UNK/a/-cd", "UNK/a", "UNK"]


def test_unknown_words():
    trees = [Tree.parse(f"(S (V {word}ing) (N {word}))") for word in ("go", "sing", "walk", "Ann")]
    trees += [Tree.parse("(S (N go) (D go))"), Tree.parse("(S (N 77) (N 77))")]
    grammar, counts = induce(trees, min_class=3)
    assert grammar.word_classes == ["UNK", "UNK/a", "UNK/a/-ing", "UNK/a/-ng"]
    names = grammar.words + grammar.word_classes
    tokens = grammar.tokens(["go", "flying", "sling", "cat", "Bob", "Flying", "8", "77"])
    assert tokens.dtype == np.int32
    assert [names[k] for k in tokens] == ["go", "UNK/a/-ing", "UNK/a/-ing", "UNK/a", "UNK", "UNK", "UNK", "77"]
    found = dict(zip(grammar.rule_names(), counts.tolist(), strict=True))
    # Seen once: going, singing, walking, Anning, sing, walk, Ann; "go" was seen three times and "77" twice.
    assert [found[f"V -> {name}"] for name in grammar.word_classes] == [4, 3, 3, 3]
    assert [found[f"N -> {name}"] for name in ("UNK", "UNK/a", "'go'", "'77'")] == [3, 2, 2, 2]
    assert found["N -> UNK/a/-ng"] == 1
    assert "D -> UNK" not in found
    tree = Tree.parse("(S (V flying) (N cat))")
    assert grammar.build(grammar.spans_of(tree), tree.words()) == tree
    assert str(grammar.build(grammar.spans_of(tree))) == "(S (V UNK/a/-ing) (N UNK/a))"
    with pytest.raises(DataError, match="no rule D -> 'cat', an unknown word of the class UNK/a "):
        grammar.spans_of(Tree.parse("(S (N go) (D cat))"))


def test_rare_words_and_unknown_words_of_training():
    grammar, counts = induce(BANK, min_word=2, rare=0, min_class=100)
    assert grammar.words == ["old", "the"]
    for tree in BANK:
        assert grammar.build(grammar.spans_of(tree), tree.words()) == tree
    found = dict(zip(grammar.rule_names(), counts.tolist(), strict=True))
    assert found["NN -> UNK"] == 2
    assert "DT -> UNK" not in found
    every = induce(BANK, rare=2, min_class=100)[0]
    assert "DT -> UNK" in every.rule_names()
    none = induce(BANK, rare=0)[0]
    assert none.word_classes == []
    with pytest.raises(DataError, match="The word 'bird' was never seen, and the grammar has no class"):
        none.tokens(["the", "bird"])


def test_pruning():
    often = [Tree.parse("(S (A a) (B b))")] * 3
    once = [Tree.parse("(S (A a) (X (Y (C c) (D d) (E e))) (B b))"), Tree.parse("(Q (S (A a) (B b)))")]
    grammar, counts = induce(often + once, min_count=2, rare=0)
    assert dict(zip(grammar.rule_names(), counts.tolist(), strict=True)) == {
        "S -> A B": 4,
        "A -> 'a'": 5,
        "B -> 'b'": 5,
    }
    assert grammar.symbols == ["A", "B", "S"]
    assert [grammar.symbols[k] for k in grammar.roots] == ["S"]
    with pytest.raises(DataError, match=r"cannot be derived: the grammar has no rule S -> A S\|<A> \(words 0 to 4\)"):
        grammar.spans_of(once[0])
    with pytest.raises(DataError, match=r"the grammar has no rule Q => S \(words 0 to 1\)"):
        grammar.spans_of(once[1])
    with pytest.raises(DataError, match="min_count=9 is too many"):
        induce(often, min_count=9)


def test_pruning_keeps_what_can_be_part_of_a_sentence():
    """Every symbol left has a rule on each side of it, and every tree of rules seen often is still derived."""
    trees = bank(3, 200)
    full, counts = induce(trees, markov=1)
    frequent = {name for name, n in zip(full.rule_names(), counts.tolist(), strict=True) if n >= 3}
    grammar, _ = induce(trees, markov=1, min_count=3)
    names = set(grammar.rule_names())
    structural = len(grammar.binary) + len(grammar.unary)
    assert set(grammar.rule_names()[:structural]) <= frequent
    lefts = set(grammar.binary[:, 0]) | set(grammar.unary[:, 0]) | set(grammar.lexical[:, 0])
    below = set(grammar.binary[:, 1:].ravel()) | set(grammar.unary[:, 1]) | set(grammar.roots)
    assert lefts == below == set(range(len(grammar.symbols)))
    kept, all_names = 0, full.rule_names()
    for tree in trees:
        rules = {all_names[r] for r in full.rules_of(tree)}
        if all(rule in frequent or "'" in rule for rule in rules):
            assert rules <= names
            assert grammar.build(grammar.spans_of(tree), tree.words()) == tree
            kept += 1
    assert 10 < kept < 200


def test_probabilities():
    grammar, counts = induce(BANK)
    weights = dict(zip(grammar.rule_names(), np.exp(pcfg_weights(grammar, counts)), strict=True))
    assert weights["S -> NP VP"] == pytest.approx(1 / 3)
    assert weights["NP -> DT NP|<DT>"] == pytest.approx(2 / 3)
    assert weights["NP => NP"] == pytest.approx(1 / 3)
    assert weights["DT -> 'the'"] == pytest.approx(1)
    assert weights["JJ -> 'old'"] == pytest.approx(2 / 4)
    assert weights["NN -> UNK"] == pytest.approx(2 / 4)
    total = Counter()
    grammar, counts = induce(bank(5, 100), rare=145, min_class=2)
    assert len(grammar.word_classes) > 1
    for name, weight in zip(grammar.rule_names(), np.exp(pcfg_weights(grammar, counts)), strict=True):
        if "UNK/" not in name:
            total[name.split()[0]] += weight
    assert set(total) == {name.split()[0] for name in grammar.symbols}
    np.testing.assert_allclose([total[name] for name in grammar.symbols if " " not in name], 1, rtol=1e-12)
    zero = np.zeros(grammar.n_rules)
    zero[0] = 2
    assert pcfg_weights(grammar, zero)[:2].tolist() == [0, -np.inf]
    with pytest.raises(DataError, match=r"The counts have shape \(3,\); expected \(\d+,\)"):
        pcfg_weights(grammar, np.ones(3))


@pytest.mark.parametrize("options", [{}, {"markov": 1, "parent": True}])
def test_model_file(tmp_path, options):
    grammar, _ = induce(BANK, **options)
    header, arrays = grammar.to_arrays()
    write_model(tmp_path / "g.mm", {"grammar": header}, arrays)
    header, arrays = read_model(tmp_path / "g.mm")
    loaded = Grammar.from_arrays(header["grammar"], arrays)
    assert loaded.rule_names() == grammar.rule_names()
    assert (loaded.markov, loaded.parent, loaded.labels) == (grammar.markov, grammar.parent, grammar.labels)
    for tree in BANK:
        np.testing.assert_array_equal(loaded.spans_of(tree), grammar.spans_of(tree))
        assert loaded.build(loaded.spans_of(tree)) == tree
    del header["grammar"]["words"]
    with pytest.raises(DataError, match="lacks 'words'"):
        Grammar.from_arrays(header["grammar"], arrays)
    with pytest.raises(DataError, match="lacks 'grammar_binary'"):
        Grammar.from_arrays(grammar.to_arrays()[0], {})


def by_hand(**changes):
    parts = {
        "symbols": ["S", "A", "B", "S|<A>"],
        "words": ["a", "b"],
        "word_classes": ["UNK"],
        "binary": [[0, 1, 3], [3, 2, 2]],
        "unary": [[0, 1]],
        "lexical": [[1, 0], [2, 1], [2, 2]],
        "roots": [0],
        "hidden": [False, False, False, True],
    }
    return Grammar(**parts | changes)


def test_without_trees():
    grammar = by_hand()
    assert grammar.n_rules == 6
    assert grammar.n_tokens == 3
    assert repr(grammar) == "Grammar(4 symbols, 2 words, 1 classes; 2 binary, 1 unary, 3 lexical rules)"
    assert grammar.rule_names() == [
        "S -> A S|<A>", "S|<A> -> B B", "S => A", "A -> 'a'", "B -> 'b'", "B -> UNK",
    ]  # fmt: skip
    tree = Tree.parse("(S (A a) (B b) (B c))")
    assert grammar.build(grammar.spans_of(tree), tree.words()) == tree
    assert by_hand(unary=[], roots=[]).unary.shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"symbols": ["S", "A", "A", "X"]}, "The symbols of a grammar must differ; 'A' stands there twice"),
        ({"words": ["a", 3]}, "The words of a grammar must be strings"),
        ({"binary": [[0, 1]]}, r"binary has shape \(1, 2\)"),
        ({"binary": [[0.0, 1.0, 2.0]]}, "binary has .* dtype float64; expected whole numbers in 3 columns"),
        ({"binary": [[0, 1, 4]]}, "binary has 4 in row 0; expected 0 to 3"),
        ({"lexical": [[1, 3]]}, "lexical has 3 in row 0; expected 0 to 2"),
        ({"roots": [-1]}, "roots has -1 in row 0; expected 0 to 3"),
        ({"unary": [[0, 3]]}, r"The hidden symbol S\|<A> stands in unary"),
        ({"roots": [3]}, "stands in roots"),
        ({"roots": [0, 0]}, "The roots of a grammar must differ"),
        ({"lexical": [[3, 0]]}, "stands in lexical"),
        ({"binary": [[0, 1, 2], [0, 1, 2]]}, "The grammar has 6 rules, but only 5 that differ"),
        ({"hidden": [True]}, "has 1 entries in hidden"),
        ({"chains": []}, "0 chains; expected one of each"),
        ({"labels": ["S", "A", "B", 3]}, "labels and chains of a grammar must be strings"),
    ],
)
def test_what_is_no_grammar(changes, match):
    with pytest.raises(DataError, match=match):
        by_hand(**changes)


def test_what_is_no_derivation():
    grammar, _ = induce(BANK)
    rows = grammar.spans_of(BANK[0])
    for wrong in (rows[1:], rows[:-1], rows[::-1], np.concatenate([rows, rows])):
        with pytest.raises(DataError, match="The rows are no derivation"):
            grammar.build(wrong)
    with pytest.raises(DataError, match="has rule 99"):
        grammar.build([[0, 1, 0, 99, -1]])


@pytest.mark.parametrize(
    ("trees", "options", "error", "match"),
    [
        ([], {}, DataError, "There is no tree to take rules from"),
        (["(A a)"], {}, DataError, "Tree 0 is a str; expected a Tree"),
        ([BANK[0], Tree.parse("( (S (A a)))")], {}, DataError, "Tree 1: a bracket has no label"),
        (
            [Tree.parse("(S (A a) (B b) (C c))"), Tree.parse("(S (S|<A> a) (B b))")],
            {}, DataError, r"Tree 1: S\|<A> is a label, and the name of a symbol made of other labels",
        ),
        (BANK, {"markov": -1}, OptionError, "markov=-1 is not possible"),
        (BANK, {"markov": True}, OptionError, "markov=True is not possible"),
        (BANK, {"parent": 1}, OptionError, "parent=1 is not possible"),
        (BANK, {"min_count": 0}, OptionError, "min_count=0 is not possible; it must be a whole number of at least 1"),
        (BANK, {"rare": -1}, OptionError, "rare=-1"),
        (BANK, {"min_word": 1.5}, OptionError, "min_word=1.5"),
    ],
)  # fmt: skip
def test_bad_input(trees, options, error, match):
    with pytest.raises(error, match=match):
        induce(trees, **options)
