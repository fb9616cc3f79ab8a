"""Experiments: what the four papers report, and comparisons with other programs, declared as data and run by one machinery.

`experiment` has the vocabulary, `results` the file that an interrupted run goes on from, `runner` the loop over settings,
`report` and `pictures` the pages; `papers/` has the declarations, one file a paper.
"""
