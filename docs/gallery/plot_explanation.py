"""
Why this tag?
=============

A tagger prefers one sequence of tags to all others. The bars are the weights by which its prediction beats the
second best: blue ones speak for the prediction, red ones against it. They sum to the difference of the two scores.
"""

import maxmargin as mm

sentences = [
    "the old dog barked at the child",
    "a child walked in the garden",
    "the children walk slowly",
    "this walk was long",
    "every dog likes a long walk",
    "old dogs bark",
]
tags = [
    "DET ADJ NOUN VERB PREP DET NOUN",
    "DET NOUN VERB PREP DET NOUN",
    "DET NOUN VERB ADV",
    "DET NOUN VERB ADJ",
    "DET NOUN VERB DET ADJ NOUN",
    "ADJ NOUN VERB",
]
tagger = mm.ChainSVM(C=100).fit([one.split() for one in sentences], [one.split() for one in tags])

explanation = tagger.explain(["the", "dogs", "walk"])
print(explanation)
mm.plot_explanation(explanation)

# %%
# Against a tagging of one's own choice: could "the dogs walk" be a walk, as in "the long walk"?
mm.plot_explanation(tagger.explain(["the", "dogs", "walk"], against=["DET", "ADJ", "NOUN"]))
