"""
A parse tree
============

A parser is trained on four bracketed sentences, and parses one that it has not seen.
"""

import maxmargin as mm

bank = [
    "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))))",
    "(S (NP (DT a) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)) (PP (IN with) (NP (DT a) (NN bone)))))",
    "(S (NP (NP (DT the) (NN dog)) (PP (IN with) (NP (DT a) (NN bone)))) (VP (VBZ barks)))",
    "(S (NP (DT the) (JJ old) (NN cat)) (VP (VBZ sleeps)))",
]
parser = mm.ParserSVM(C=100, markov=1).fit(bank)
tree = parser.predict([["the", "old", "dog", "sees", "a", "cat", "with", "the", "bone"]])[0]
print(tree)
mm.plot_tree(tree)
