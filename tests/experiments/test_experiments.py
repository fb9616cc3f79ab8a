"""The machinery of experiments: settings, the file of results, the processes, and the pages."""

import errno
import json
import math
import os
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.experiments.experiment import Beside, Row, Table, View, find, judge, values_of
from maxmargin.experiments.registry import EXPERIMENTS, choose
from maxmargin.experiments.report import Report, Section
from maxmargin.experiments.results import ResultsFile
from maxmargin.experiments.runner import Failure, run_experiments
from reference.jobs import experiment, fails, show, square


class Watch:
    def __init__(self):
        self.said, self.counts = [], None

    def start(self, *counts):
        self.counts = counts

    def finished(self, experiment, setting, seconds, why):
        self.said.append((setting, why))


def run(experiments, path, n_jobs=1):
    watch, results = Watch(), ResultsFile(path, "1")
    return results, run_experiments(experiments, "quick", results, watch, n_jobs=n_jobs), watch


# ------------------------------------------------------------------------------------------------------------ settings


def test_a_grid_is_all_combinations_of_each_part():
    one = experiment(grid=({"a": (1, 2), "b": ("x", "y")}, {"a": (3,)}))
    assert one.settings("full") == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3},
    ]  # fmt: skip


def test_names_choose_experiments():
    assert [one.name for one in choose(["soft-figure-1"])] == ["soft-figure-1"]
    assert {one.paper for one in choose(["soft", "gap"])} == {"soft", "gap"}
    assert len(choose([])) == len(EXPERIMENTS)
    with pytest.raises(OptionError, match=r"no experiment 'soft-figure-9'\. Did you mean .* There are: soft-figure-1"):
        choose(["soft-figure-9"])


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_settings_can_be_kept_and_are_all_different(mode):
    for one in EXPERIMENTS.values():
        keys = [json.dumps(setting, sort_keys=True) for setting in one.settings(mode)]
        assert len(keys) == len(set(keys)) > 0
        assert one.show([]).verdicts == [] or all(verdict.outcome == "not run" for verdict in one.show([]).verdicts)


# ------------------------------------------------------------------------------------------------------------- results


def test_results_are_read_again(tmp_path):
    path = tmp_path / "results.jsonl"
    results = ResultsFile(path, "1")
    figures = {"y": np.float64(2.0), "a": np.arange(3), "nan": math.nan, "deep": {"inf": [math.inf, True]}}
    results.add("one", Row({"x": 1, "z": "b"}, figures, 0.5))
    again = ResultsFile(path, "1")
    assert ("one", {"z": "b", "x": 1}) in again
    (row,) = again.rows("one", [{"x": 2}, {"x": 1, "z": "b"}])
    assert row.figures == {"y": 2.0, "a": [0, 1, 2], "nan": None, "deep": {"inf": [None, True]}}
    assert results.rows("one", [{"x": 1, "z": "b"}]) == [row]


def test_the_beginning_of_a_line_is_cut_off(tmp_path):
    """What kill -9 may leave, at every byte of the last line."""
    path = tmp_path / "results.jsonl"
    for x in (1, 2):
        ResultsFile(path, "1").add("one", Row({"x": x}, {"y": x}, 0.0))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        results = ResultsFile(path, "1")
        assert len(results) == 1
        assert path.read_bytes() == whole[:first]
        results.add("one", Row({"x": 2}, {"y": 2}, 0.0))
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rubbish", "line 2 is not a result"),
        ("[1, 2]", "line 2 is not a result"),
        ("[" * 100_000, "line 2 is not a result"),
        ('{"experiment": "a", "setting": [], "figures": {}, "seconds": 1, "version": "1"}', "line 2 is not a result"),
        ('{"experiment": "a", "setting": {}, "figures": {}, "seconds": "x", "version": "1"}', "line 2 is not a result"),
        (
            '{"experiment": "a", "setting": {}, "figures": {}, "seconds": 1, "version": "0"}',
            "line 2 is a result of version 0",
        ),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, words):
    path = tmp_path / "results.jsonl"
    ResultsFile(path, "1").add("one", Row({"x": 1}, {}, 0.0))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=words):
        ResultsFile(path, "1")


def test_a_directory_that_cannot_be_written(tmp_path):
    with pytest.raises(OptionError, match="The results cannot be kept in"):
        ResultsFile(tmp_path / "none" / "results.jsonl", "1")


def test_a_full_disk_is_a_sentence_and_leaves_whole_lines(tmp_path, monkeypatch):
    results = ResultsFile(tmp_path / "r.jsonl", "1")
    results.add("one", Row({"x": 1}, {}, 0.0))
    before = results.path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OptionError, match=r"No space left on device\. The 1 settings that were finished before are in it"
    ):
        results.add("one", Row({"x": 2}, {}, 0.0))
    assert results.path.read_bytes() == before
    assert ("one", {"x": 2}) not in results


def test_only_a_file_can_hold_results(tmp_path):
    with pytest.raises(OptionError, match="it is not a file"):
        ResultsFile(tmp_path, "1")


# -------------------------------------------------------------------------------------------------------------- runner


def test_settings_are_run_once(tmp_path):
    log = tmp_path / "log"
    one = experiment(grid=({"x": (1, 2, 3), "log": (str(log),)},))
    results, failures, watch = run([one], tmp_path / "r.jsonl", n_jobs=2)
    assert failures == []
    assert watch.counts == (3, 0)
    assert [row.figures["y"] for row in results.rows(one.name, one.settings("quick"))] == [1, 4, 9]
    assert {row.figures["threads"] for row in results.rows(one.name, one.settings("quick"))} == {"1"}
    more = experiment(grid=({"x": (1, 2, 3, 4), "log": (str(log),)},))
    _, _, watch = run([more], tmp_path / "r.jsonl", n_jobs=2)
    assert watch.counts == (1, 3)
    assert sorted(log.read_text().split()) == ["1", "2", "3", "4"]


def test_what_fails_does_not_stop_the_others(tmp_path):
    bad = experiment(fails, ({"how": ("data", "error", "killed", "fine")},), "test-bad", show=lambda rows: View())
    timed = experiment(name="test-timed", timed=True)
    results, failures, watch = run([bad, timed], tmp_path / "r.jsonl", n_jobs=2)
    why = {failure.setting["how"]: failure.why for failure in failures}
    assert set(why) == {"data", "error", "killed"}
    assert "put the file at home/squares" in why["data"]
    assert why["error"] == "ZeroDivisionError: a division"
    assert "its process was killed" in why["killed"]
    assert len(results) == 1 + 3
    assert len(watch.said) == 4 + 3
    # They are tried again, and nothing else is.
    _, again, watch = run([bad, timed], tmp_path / "r.jsonl")
    assert watch.counts == (3, 4)
    assert len(again) == 3


# -------------------------------------------------------------------------------------------------------------- report


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects identifiers and links."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.sources = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        self.sources += [
            value for name, value in attributes.items() if name == "src" or (name == "href" and tag == "link")
        ]

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def make_report():
    rows = [Row({"x": x}, square({"x": x}, None), 1.0) for x in (1, 2, 3)]
    one = experiment()
    view = show(rows)
    view.tables.append(
        Table("Beside.", ("a", "b", "c"), [["<b>", Beside(1.234, 1.2), None], ["|", Beside(None, 2.0), 12_345]])
    )
    section = Section(one, view, rows, 4, [Failure("test-squares", {"x": 4}, "there is no <four>")])
    return Report("A <title>", "maxmargin reproduce", "quick", {"test": "A. Author: A & B"}, [section])


def test_the_page_is_whole_and_needs_nothing_else(tmp_path):
    report = make_report()
    html = report.html()
    page = Page(html)
    assert page.sources == []
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert html.count("<svg") == 1
    assert not re.search(r'(?:src|url\(|@import)\s*=?\s*["(]?\s*https?:', html)
    for text in ("A &lt;title&gt;", "It &lt;grows&gt;.", "there is no &lt;four&gt;", "A &amp; B", "&lt;b&gt;"):
        assert text in html
    # References inside pictures find what they name.
    for name in re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', html):
        assert "".join(name) in page.ids
    assert [path.name for path in report.write(tmp_path)] == ["report.html", "report.md", "report.json"]
    assert (tmp_path / "report.html").read_text() == html
    # Pictures by themselves are whole files, too, and the Markdown links to them.
    ElementTree.parse(tmp_path / "test-squares-1.svg")
    assert "(test-squares-1.svg)" in (tmp_path / "report.md").read_text()


def test_markdown_and_json_have_the_numbers():
    report = make_report()
    text = report.markdown()
    assert "| 3 | 9 |" in text
    assert "| <b> | 1.23 (1.20) | – |" in text
    assert "**reproduced**: It <grows>. See." in text
    assert "**not run**: x = 4: there is no <four>" in text
    assert report.summary() == "1 claims: 1 reproduced; 1 settings could not be run."
    loaded = json.loads(report.json())
    assert loaded["experiments"][0]["results"][2] == {
        "setting": {"x": 3},
        "figures": {"y": 9, "threads": None},
        "seconds": 1.0,
    }
    assert loaded["experiments"][0]["tables"][1]["rows"][0][1] == {"ours": 1.234, "paper": 1.2}
    assert loaded["versions"]["python"]


def test_pictures_take_the_color_of_the_text():
    svg = re.search(r"<svg.*?</svg>", make_report().html(), re.DOTALL).group()
    assert "currentColor" in svg
    assert "#123456" not in svg
    assert "Squares, drawn." in svg
    assert "a &amp; b" in svg


def test_small_helpers():
    rows = [Row({"a": 1, "b": 2}, {}, 0.0), Row({"a": 1, "b": 3}, {}, 0.0)]
    assert values_of(rows, "a") == [1]
    assert find(rows, b=3) is rows[1]
    assert find(rows, b=4) is None
    assert [judge("", holds, "").outcome for holds in (True, False, None)] == ["reproduced", "differs", "not run"]
