"""Pictures of trees: what is in them, and that nothing overlaps, as the drawn texts and lines themselves say."""

import itertools
import sys
import xml.etree.ElementTree as ET

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox

from maxmargin.errors import DataError, MaxMarginError
from maxmargin.parsing.trees import Tree
from maxmargin.reporting.tree_plot import plot_tree, tree_svg

matplotlib.use("Agg")

# Twenty-one words with narrow and wide names, capitals, dollars, a long chain over a short word, and flat nodes.
LONG = Tree.parse(
    "(S (NP (NP (NNP MWMW) (NNP WWW)) (SBAR (WHADVP (WHADVP (WHADVP (WRB i)))) (S (NP (PRP I)) (VP (VBD am) (NP (CD a) "
    "(CD b) (CD c)))))) (, ,) (VP (MD will) (VP (VB pay) (NP (QP ($ $) (CD 1.5) (CD million) (-NONE- *U*))) (PP-CLR (TO to) "
    "(NP (NP (DT the) (NNS internationalisations)) (PP (IN of) (NP (PRP$ its) (X (X (X (JJ l))))))))) (. .)))"
)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def crosses(one, other):
    """Whether two segments cross in more than their ends."""

    def side(p, q, r):
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    a, b, c, d = *one, *other
    return side(a, b, c) * side(a, b, d) < -1e-6 and side(c, d, a) * side(c, d, b) < -1e-6


def cuts(box, segment):
    corners = [(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)]
    inside = any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for x, y in segment)
    return inside or any(crosses(segment, side) for side in zip(corners, corners[1:] + corners[:1], strict=True))


def check_picture(boxes, lines, width, height):
    segments = [pair for line in lines for pair in itertools.pairwise(line)]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for one, other in itertools.combinations(segments, 2):
        assert not crosses(one, other)
    for box in boxes:
        assert not any(cuts(box, segment) for segment in segments)
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def names(tree):
    return sorted([node.label for node in tree.nodes()] + tree.words())


def test_nothing_overlaps_in_the_figure():
    ax = plot_tree(LONG)
    figure = ax.figure
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert sorted(text.get_text() for text in ax.texts) == names(LONG)
    lines = [ax.transData.transform(line.get_xydata()) for line in ax.lines]
    # One line into every node but the root, and into every word.
    assert len(lines) == len(list(LONG.nodes())) - 1 + len(LONG.words())
    check_picture(boxes, lines, figure.bbox.width, figure.bbox.height)


def test_words_stand_in_a_line_and_nodes_above_what_is_under_them():
    ax = plot_tree(LONG)
    words = [text for text in ax.texts if text.get_style() == "italic"]
    words.sort(key=lambda text: text.get_position()[0])
    assert [text.get_text() for text in words] == LONG.words()
    assert len({text.get_position()[1] for text in words}) == 1
    bottom = words[0].get_position()[1]
    # y grows downwards.
    root = min(text.get_position()[1] for text in ax.texts)
    assert root < bottom
    assert [text.get_text() for text in ax.texts if text.get_position()[1] == root] == ["S"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_nothing_overlaps_in_the_svg():
    root = ET.fromstring(tree_svg(LONG, font_size=20))
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    boxes = []
    texts = root.findall(f"{space}text")
    for text in texts:
        style = text.get("font-style", "normal")
        shape = TextPath(
            (0, 0), text.text, size=20, prop=FontProperties(family="DejaVu Sans", style=style), usetex=False
        )
        extent = shape.get_extents()
        x, y = float(text.get("x")) - (extent.x0 + extent.x1) / 2, float(text.get("y")) + 0.35 * 20
        boxes.append(Bbox([[x + extent.x0, y - extent.y1], [x + extent.x1, y - extent.y0]]))
    assert sorted(text.text for text in texts) == names(LONG)
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in root.findall(f"{space}polyline")
    ]
    check_picture(boxes, lines, float(root.get("width")), float(root.get("height")))


def test_axes_of_the_users_own():
    _, ax = plt.subplots()
    assert plot_tree(Tree.parse("(NP ($ $) (CD 5$))"), ax=ax) is ax
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts].count("$") == 2


def test_what_xml_cannot_hold():
    root = ET.fromstring(tree_svg(Tree.parse("(S (A <a&b>) (B x\x01y))")))
    assert [text.text for text in root.iter() if text.text and text.text.strip()] == [
        "S", "B", "x\ufffdy", "A", "<a&b>",
    ]  # fmt: skip


def test_deep_trees():
    assert tree_svg(Tree.parse("(A " * 3000 + "(B b)" + ")" * 3000)).count("<text") == 3002


def test_bad_input(monkeypatch):
    with pytest.raises(DataError, match="str cannot be drawn; expected a Tree"):
        tree_svg("(A a)")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MaxMarginError, match=r"pip install 'maxmargin\[plot\]'"):
        plot_tree(LONG)
