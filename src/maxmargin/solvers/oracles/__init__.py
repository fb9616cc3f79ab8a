"""Oracles: answers for weights.

An engine (inference/) answers for tables of scores; an oracle makes those tables, asks it, and makes planes of the
answers.
"""
