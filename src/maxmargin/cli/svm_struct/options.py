"""The options of ``svm_multiclass_learn``, ``svm_hmm_learn`` and their ``classify``, and what they are here.

Conventions
-----------
A letter after one minus is an option of all of SVM-struct, after two one of the application, as there: ``-t`` is the kernel and
``--t`` the order of SVM-hmm's transitions. Options stand before the files, and each has a value. What has a meaning here is a
parameter of the estimator or of its solver; what only speeds up or reports their solver is ignored, and said to be; anything
else is refused by its name.

SVM-struct (SVM-multiclass V2.20, SVM-hmm V3.10) minimises

    1/2 |w|^2 + C 1/n sum_i xi_i,        xi_i >= max_y  loss(y_i, y) + w.psi(x_i, y) - w.psi(x_i, y_i)

so its C is ours, if the loss is in its units: 100 for a wrong class, 1 for a wrong tag. (The first versions had the sum in the
place of the mean.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from maxmargin.cli.exits import say
from maxmargin.errors import OptionError

#: Options of learning with a meaning here: what their value is, and its default.
LEARN: dict[str, tuple[type, Any, str]] = {
    "-c": (float, 0.01, "C: the loss against the regulariser"),
    "-e": (float, 0.1, "epsilon: stop when no constraint is violated by more, in units of the loss"),
    "-o": (int, 2, "1 slack rescaling, 2 margin rescaling"),
    "-l": (int, 0, "loss"),
    "-w": (int, 4, "0, 1 n-slack; 2, 3 1-slack; 4 1-slack, with a cache if -f or -b are given"),
    "-p": (int, 1, "norm of the slacks: 1"),
    "-k": (int, 100, "constraints before the programme is solved again (-w 0, 1)"),
    "-f": (int, 5, "cached constraints of an example (-w 4)"),
    "-b": (float, 100.0, "per cent of the examples whose cache is refreshed at a time (-w 4)"),
    "-t": (int, 0, "kernel: 0 linear, 1 polynomial, 2 rbf"),
    "-d": (int, 3, "degree of the polynomial kernel (s a.b + r)^d"),
    "-g": (float, 1.0, "gamma of the rbf kernel"),
    "-s": (float, 1.0, "s of the polynomial kernel"),
    "-r": (float, 1.0, "r of the polynomial kernel"),
    "-v": (int, 1, "0 shows no progress"),
}
CLASSIFY: dict[str, tuple[type, Any, str]] = {"-v": (int, 1, "0 prints no figures")}
#: Options that are about SVM-light's solver of quadratic programmes, or about its messages.
_IGNORED = {
    "-y": "messages of SVM-light",
    "-n": "SVM-light's working set",
    "-q": "SVM-light's working set",
    "-m": "SVM-light's cache of kernel values",
    "-h": "SVM-light's shrinking",
    "-#": "SVM-light's iterations",
    "-u": "kernels written in C",
}
_IGNORED_BY_CLASSIFY = {"-y": "messages of SVM-light", "-f": "older formats of predictions"}
#: Options of theirs that ask for what is not there.
_REFUSED = {"-a": "the dual variables of SVM-light are not there to be written"}


@dataclass
class Options:
    """Values of all options, by name, and the files after them."""

    values: dict[str, Any]
    files: list[str]
    given: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def parse(
    command: str, words: Sequence[str], known: dict[str, tuple[type, Any, str]], own: dict[str, tuple[type, Any, str]]
) -> Options:
    """The options of a command line of SVM-struct.

    Parameters
    ----------
    command : str
        As the user writes it, for sentences: "svm-hmm learn".
    words : sequence of str
        What comes after it.
    known, own : dict
        Options of all of SVM-struct, and of the application: what a value is, the default, and what it means.
    """
    learning = known is not CLASSIFY
    ignored = _IGNORED if learning else _IGNORED_BY_CLASSIFY
    every = known | own
    found = Options({name: default for name, (_, default, _) in every.items()}, [])
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        name = words[at]
        if name in _REFUSED and learning:
            raise OptionError(f"{command}: {name} is not possible: {_REFUSED[name]}.")
        if name not in every and name not in ignored:
            raise OptionError(
                f"{command} has no option {name}; it has {', '.join([*every, *ignored])}, and the files come after them."
            )
        if at + 1 >= len(words):
            raise OptionError(f"{command}: {name} needs a value after it.")
        text = words[at + 1]
        if name in ignored:
            say(f"{name} {text} is ignored: it is about {ignored[name]}, which has no part here.")
        else:
            found.values[name] = _value(command, name, text, every[name][0])
            found.given.add(name)
        at += 2
    found.files = list(words[at:])
    late = next((word for word in found.files if word in every or word in ignored), None)
    if late is not None:
        raise OptionError(f"{command}: {late} stands after a file; options come before the files, as in SVM-struct.")
    return found


def _value(command: str, name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise OptionError(f"{command}: {name} is {text!r}; expected {noun}.") from None


def describe(known: dict[str, tuple[type, Any, str]], own: dict[str, tuple[type, Any, str]]) -> str:
    """The options, one a line, for ``--help``."""
    lines = [f"  {name:<4} {meaning} (default: {default:g})" for name, (_, default, meaning) in (known | own).items()]
    return "\n".join(lines)


def check_choice(command: str, options: Options, name: str, possible: Sequence[Any], instead: str = "") -> None:
    """Refuse a value that is not possible here."""
    if options[name] not in possible:
        choices = ", ".join(map(str, possible))
        raise OptionError(f"{command}: {name} is {options[name]}; possible are {choices}{instead}.")


def estimator_options(command: str, options: Options) -> dict[str, Any]:
    """Parameters that the estimators share: C, the tolerance, the solver and the kernel."""
    check_choice(command, options, "-o", (1, 2))
    check_choice(
        command, options, "-w", range(5), " (9 is an algorithm of your own in C: a solver here is a class in Python)"
    )
    check_choice(command, options, "-p", (1,), ": squared slacks are not there")
    check_choice(command, options, "-t", range(3), " (kernels of your own are a function in Python, kernel=)")
    for name, least in (("-c", 0.0), ("-e", 0.0)):
        if not options[name] > least or options[name] == float("inf"):
            raise OptionError(f"{command}: {name} is {options[name]:g}; it must be above {least:g} and finite.")
    kernel = ("linear", "poly", "rbf")[options["-t"]]
    found: dict[str, Any] = {
        "C": options["-c"], "tol": options["-e"], "solver": _solver(command, options), "kernel": kernel,
        "fit_intercept": False, "scale": False, "max_passes": 1_000_000, "n_jobs": -1, "verbose": min(options["-v"], 1),
    }  # fmt: skip
    if kernel != "linear":
        found |= {"gamma": options["-g"] if kernel == "rbf" else options["-s"]}
        found |= {"degree": options["-d"], "coef0": options["-r"]}
    return found


def _solver(command: str, options: Options) -> Any:
    """The solver that ``-w`` names, which stops as SVM-struct does.

    Planes are asked for at the programme's solution (``step=1``), as in the paper. Other steps need fewer rounds, but with a large
    ``-e`` the weights at which training stops depend on the way there. For the same reason there is a cache only if ``-f`` or
    ``-b`` ask for one: to find all constraints anew takes no longer here (`OneSlack`).
    """
    from maxmargin.solvers import NSlack, OneSlack

    rescaling = {1: "slack", 2: "margin"}[options["-o"]]
    for name, needed in (("-k", (0, 1)), ("-f", (4,)), ("-b", (4,))):
        if name in options.given and options["-w"] not in needed:
            say(f"{name} is ignored: it is for -w {' and '.join(map(str, needed))}.")
    if options["-w"] <= 1:
        return NSlack(rescaling=rescaling, batch=options["-k"], epsilon="tol", stop="svm-struct")
    if options["-w"] < 4 or not {"-f", "-b"} & options.given:
        return OneSlack(rescaling=rescaling, cache=0, stop="svm-struct", step=1.0)
    if not 0 < options["-b"] <= 100:
        raise OptionError(f"{command}: -b is {options['-b']:g}; expected a percentage above 0, at most 100.")
    return OneSlack(rescaling=rescaling, cache=options["-f"], refresh=options["-b"] / 100, stop="svm-struct", step=1.0)
