"""
What follows what: a tagger's transitions
=========================================

A tagger learns which tags follow each other. Arrows are the strongest weights from each tag: blue ones are sought,
red ones avoided. A sequence likes to begin with the darker tags.
"""

import numpy as np

import maxmargin as mm

rng = np.random.default_rng(0)
words = {
    "DET": ["the", "a", "this", "every"],
    "ADJ": ["small", "old", "red", "quick"],
    "NOUN": ["dog", "cat", "garden", "child", "walk"],
    "VERB": ["saw", "walked", "barked", "walk"],
    "PREP": ["in", "at", "with"],
    "ADV": ["slowly", "often"],
}


def phrase():
    return ["DET", *["ADJ"] * rng.choice(3, p=[0.5, 0.35, 0.15]), "NOUN"]


def sentence():
    """Tags of a sentence: a subject, a verb, and perhaps an object, a place and a manner."""
    tags = phrase() + (["ADV"] if rng.random() < 0.2 else []) + ["VERB"]
    tags += phrase() if rng.random() < 0.5 else []
    return tags + (["PREP", *phrase()] if rng.random() < 0.5 else [])


tags = [sentence() for _ in range(60)]
sentences = [[str(rng.choice(words[tag])) for tag in one] for one in tags]
tagger = mm.ChainSVM(C=10).fit(sentences, tags)
mm.plot_transitions(tagger)

# %%
# The same weights as a heat map, all of them:
mm.plot_interactions(tagger)
