"""The blocks of code of a page in Markdown, and how each is run.

A block is run unless the page says why not. What a page tells the tests stands in comments, which readers do not see:

    <!-- not run: REASON -->        the next block is not run
    <!-- needs: MODULE -->          the page is skipped where MODULE is not installed
    <!-- run first                  Python that is run here, in the page's place and among its names: files that the
    CODE                            commands below read, for instance
    -->

Blocks of Python share one set of names, from top to bottom. Of blocks of shell every line is a command ``maxmargin ...``, which
runs in this process; ``> FILE`` and ``zcat FILE |`` are understood. A block without a language that follows a block that was run is
what that block prints: compared in all but its numbers, which machines may round differently. A block of ``text`` is only read.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)(`{3,})(.*)$")
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


@dataclass
class Block:
    """Code of one language, the line of the page where it begins, and why it is not run, if it is not."""

    language: str
    text: str
    line: int
    reason: str = ""


@dataclass
class Page:
    """The blocks of a page in order, and the modules that it needs."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def read_page(path: Path) -> Page:
    """Read the blocks of a page, and what it says of them in comments."""
    page, lines, at, reason = Page(path), path.read_text(encoding="utf8").splitlines(), 0, ""
    while at < len(lines):
        line = lines[at]
        at += 1
        if fence := _FENCE.match(line):
            indent, ticks, language = fence.groups()
            end = next(k for k in range(at, len(lines)) if lines[k].strip() == ticks)
            text = "\n".join(row.removeprefix(indent) for row in lines[at:end])
            page.blocks.append(Block(language.strip(), text, at, reason))
            at, reason = end + 1, ""
        elif comment := re.match(r"<!-- not run: (.*) -->$", line):
            reason = comment[1]
        elif comment := re.match(r"<!-- needs: (\w+) -->$", line):
            page.needs.append(comment[1])
        elif line == "<!-- run first":
            end = lines.index("-->", at)
            page.blocks.append(Block("python", "\n".join(lines[at:end]), at))
            at = end + 1
    return page


def run_page(page: Page) -> dict[str, object]:
    """Run the blocks of a page in the present directory and return the names that it defines."""
    space: dict[str, object] = {"__name__": "__main__"}
    printed = None
    for block in page.blocks:
        if block.reason:
            printed = None
        elif block.language == "python":
            printed = _run_python(page, block, space)
        elif block.language == "bash":
            printed = _run_shell(page, block)
        elif not block.language and printed is not None:
            _compare(page, block, printed)
            printed = None
        else:
            printed = None
    return space


def _run_python(page: Page, block: Block, space: dict[str, object]) -> str:
    # Empty lines before the code, so that an error names the line of the page.
    code = compile("\n" * block.line + block.text, page.name, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, space)
    return out.getvalue()


def _run_shell(page: Page, block: Block) -> str:
    printed = ""
    for number, line in enumerate(block.text.replace("\\\n", " ").splitlines(), block.line + 1):
        words = shlex.split(line, comments=True)
        if words:
            printed += _run_command(words, f"{page.name}, line {number}: {line}")
    return printed


def _run_command(words: list[str], where: str) -> str:
    from maxmargin.cli.main import run

    given = b""
    if words[0] == "zcat" and words[2] == "|":
        given, words = gzip.decompress(Path(words[1]).read_bytes()), words[3:]
    assert words[0] == "maxmargin", f"{where}: only maxmargin's commands are run; say why this one is not"
    target = None
    if ">" in words:
        at = words.index(">")
        target, words = Path(words[at + 1]), words[:at]
    out, err = io.StringIO(), io.StringIO()
    stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(given))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words[1:])
    finally:
        sys.stdin = stdin
    assert code == 0, f"{where} ended with {code}: {err.getvalue()}"
    if target is not None:
        target.write_text(out.getvalue(), encoding="utf8")
        return ""
    return out.getvalue()


def _compare(page: Page, block: Block, printed: str) -> None:
    """What the page says is printed is printed, whatever the figures; rules of tables may be longer or shorter."""

    def words(text: str) -> list[str]:
        return re.sub(r"─+", "", _NUMBER.sub("#", text)).split()

    assert words(printed) == words(block.text), (
        f"{page.name}, line {block.line}: the page says\n{block.text}\nbut this is printed:\n{printed}"
    )
