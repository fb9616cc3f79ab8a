"""The report in a real browser: it loads, its pictures are drawn, its tables sort, on a desk and on a phone."""

import html
import json
import re
import shutil
import subprocess

import pytest

from maxmargin.experiments.experiment import Row
from maxmargin.experiments.report import Report, Section
from reference.jobs import experiment, show, square

pytest.importorskip("matplotlib")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: Clicks on the second column once and once more, and says what there is to see.
LOOK = """
<pre id="seen"></pre><script>
const column = () => [...document.querySelectorAll("table.sortable tbody tr")].map(row => row.children[1].textContent);
const head = document.querySelectorAll("table.sortable th")[1];
const seen = {before: column(), pictures: [...document.querySelectorAll("svg")].map(svg => {
  const box = svg.getBoundingClientRect();
  return {width: box.width, height: box.height, parts: svg.querySelectorAll("path, use, text").length};
}), body: document.body.getBoundingClientRect().width, scroll: document.documentElement.scrollWidth, window: innerWidth};
head.click();
seen.up = column();
head.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
seen.down = column();
document.getElementById("seen").textContent = JSON.stringify(seen);
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_works(tmp_path, width):
    rows = [Row({"x": x}, square({"x": x}, None), 1.0) for x in (3, 1, 12, 2)]
    section = Section(experiment(), show(rows), rows, 4, [])
    text = Report("A title", "maxmargin reproduce", "quick", {"test": "A paper"}, [section]).html()
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", LOOK + "</body>"))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},900",
        "--dump-dom",
        page.as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    seen = json.loads(html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', shown).group(1)))
    assert seen["before"] == ["9", "1", "144", "4"]
    assert seen["up"] == ["1", "4", "9", "144"]
    assert seen["down"] == ["144", "9", "4", "1"]
    for picture in seen["pictures"]:
        assert picture["width"] > 0.8 * min(seen["body"], seen["window"])
        assert picture["height"] > 50
        assert picture["parts"] > 20
    # Nothing but tables scrolls sideways, and those inside their own box.
    assert seen["scroll"] <= seen["window"]
