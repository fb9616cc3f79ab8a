"""Docstrings of public names say what the signatures have: every parameter, in order, and no other."""

import dataclasses
import enum
import inspect
import re

import pytest

import maxmargin
from documentation.public import public_names
from maxmargin.estimators.base import StructuredEstimator
from maxmargin.inference import Engine
from maxmargin.solvers import Monitor

NAMES = public_names()
#: A method of one of these means the same in every class that has it, with the same parameters.
CONTRACTS = (Engine, Monitor)
ESTIMATORS = [name for name in maxmargin.__all__ if name.endswith("SVM")]
#: Parameters that mean something else to some estimators.
OWN = {"C", "solver", "inference", "loss", "kernel", "n_jobs", "checkpoint"}


def section(text, title):
    """The entries of a section of a docstring: names, what stands after the colon, and the lines below."""
    found = re.search(
        rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}\n|\Z)", inspect.cleandoc(text or ""), re.DOTALL | re.MULTILINE
    )
    entries = []
    for line in found[1].splitlines() if found else []:
        if line and not line.startswith(" "):
            names, _, kind = line.partition(" : ")
            entries.append([[name.strip().lstrip("*") for name in names.split(",")], kind, ""])
        elif entries:
            entries[-1][2] = f"{entries[-1][2]} {line.strip()}".strip()
    return entries


def names_of(entries):
    return [name for names, _, _ in entries for name in names]


def parameters(function):
    given = list(inspect.signature(function).parameters.values())
    return [one.name for one in given if one.name not in ("self", "cls")]


def is_record(value):
    return inspect.isclass(value) and (dataclasses.is_dataclass(value) or hasattr(value, "_fields"))


def methods(value):
    """Public functions of a class that are the library's own and have parameters."""
    for name in dir(value):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(value, name)
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if (
            inspect.isfunction(function)
            and (function.__module__ or "").startswith("maxmargin")
            and parameters(function)
        ):
            yield name, function


def keeps_a_contract(value, name, function):
    """Whether a base class, or a protocol, says what the parameters are."""
    return any(
        parameters(promised) == parameters(function) == names_of(section(promised.__doc__, "Parameters"))
        for promised in (vars(base).get(name) for base in (*CONTRACTS, *value.__mro__[1:]))
        if inspect.isfunction(promised)
    )


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_documented_in_order(name):
    value = NAMES[name]
    assert value.__doc__, f"{name} has no docstring"
    if inspect.isclass(value) and (issubclass(value, (Exception, enum.Enum)) or getattr(value, "_is_protocol", False)):
        return
    entries = section(value.__doc__, "Parameters")
    if is_record(value) and not entries:
        entries = section(value.__doc__, "Attributes")
    assert names_of(entries) == parameters(value)
    assert all(kind or text for _, kind, text in entries)


@pytest.mark.parametrize("name", [name for name, value in NAMES.items() if inspect.isclass(value)])
def test_parameters_of_methods_are_documented_in_order(name):
    wrong = []
    for method, function in methods(NAMES[name]):
        found = names_of(section(function.__doc__, "Parameters"))
        if found != parameters(function) and not (not found and keeps_a_contract(NAMES[name], method, function)):
            wrong.append(f"{method} has {parameters(function)}; documented are {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_explained_elsewhere(name):
    value = NAMES[name]
    texts = [value.__doc__ or "", *(function.__doc__ or "" for _, function in methods(value) if inspect.isclass(value))]
    for text in texts:
        for title in ("Parameters", "Attributes"):
            for names, kind, _ in section(text, title):
                assert not kind.startswith("see "), f"{names}: {kind!r}"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_estimators_share_is_described_in_the_same_words(name):
    shared = {tuple(names): rest for names, *rest in section(StructuredEstimator.__doc__, "Parameters")}
    for names, *rest in section(getattr(maxmargin, name).__doc__, "Parameters"):
        if tuple(names) in shared and names[0] not in OWN:
            assert rest == shared[tuple(names)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_have_attributes_and_an_example(name):
    text = getattr(maxmargin, name).__doc__
    assert "result_" in names_of(section(text, "Attributes"))
    assert ">>> " in text
