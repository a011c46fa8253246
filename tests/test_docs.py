"""The documentation is true: Python and commands print what a page shows, links lead somewhere, and
the reference, the tree and the index are complete.

In a python block a line that starts with `# `, or is `#`, is output, and all output is shown. In a
console block `$ ` starts a command of rhovec, and the lines below it, if any, are its output. The
blocks of a page run in order, in one namespace and one folder.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
RECORDS = [*sorted((ROOT / "reproduction").rglob("*.md")), *sorted((ROOT / "results").glob("*.md"))]
CONSOLE = runpy.run_path(str(ROOT / "docs" / "console.py"))
BLOCK: re.Pattern[str] = CONSOLE["BLOCK"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_page(text: str, name: str, folder: Path) -> None:
    """Run the blocks of a page in `folder`, which must be the working directory."""
    namespace: dict[str, object] = {"__name__": name}
    for block in BLOCK.finditer(text):
        language, code = block.groups()
        line = text.count("\n", 0, block.start(2))
        if language == "python":
            shown = [part[2:] for part in code.splitlines() if part[:2] in ("#", "# ")]
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile("\n" * line + code, name, "exec"), namespace)
            assert output.getvalue().splitlines() == shown, f"{name}, block at line {line}"
        elif language == "console":
            for command, shown in CONSOLE["commands"](code):
                printed = CONSOLE["run_command"](command, folder)
                assert not shown or printed == shown, (
                    f"$ {command}; run python docs/console.py {name}"
                )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_run_and_print_what_they_show(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(), str(page), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n# 2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```\n",
        "```console\n$ rhovec --version\nrhovec of another day\n```\n",
        "```console\n$ rhovec parse 'x_0 >='\n```\n",
        "```console\n$ echo rhovec\n```\n",
    ],
)
def test_a_page_that_is_wrong_is_noticed(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        run_page(text, "page.md", tmp_path)


def anchors(page: Path) -> set[str]:
    """What #… may name on a page, as GitHub makes it of the headings."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES + RECORDS, ids=name)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_tree_in_the_readme_is_the_package():
    text = (ROOT / "README.md").read_text()
    (tree,) = re.findall(r"^src/rhovec/\n((?:  .*\n)+)", text, re.MULTILINE)
    there = {
        path.name + "/" * path.is_dir()
        for path in (SOURCE / "rhovec").iterdir()
        if not path.name.startswith("__") and path.suffix in ("", ".py")
    }
    assert sorted(re.findall(r"^  (\S+)", tree, re.MULTILINE)) == sorted(there)


def test_every_page_is_in_the_index():
    text = (ROOT / "docs" / "README.md").read_text()
    assert [p.name for p in PAGES if p.parent.name == "docs" and f"({p.name})" not in text] == [
        "README.md"
    ]


def test_the_reference_is_what_the_code_says():
    script = runpy.run_path(str(ROOT / "docs" / "api.py"))
    assert script["PAGE"].read_text() == script["page"](), "run python docs/api.py"


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=name)
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example))
    assert any(tmp_path.iterdir())
