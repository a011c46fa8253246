"""Writes docs/api.md from signatures and docstrings: all public names, and all modules in a line.

python docs/api.py

A test compares the page with what this writes, so that it cannot go stale.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import rhovec
import rhovec.library
import rhovec.mining
import rhovec.sklearn

PAGE = Path(__file__).with_name("api.md")
HEAD = """# API reference

Every public name, with the first lines of its docstring; `help(name)` in Python shows the rest. \
A *formula* is a `Formula` or its text. A single formula drops the axis B of an answer, a list keeps \
it, even of length one. Errors that a user can cause are `RhovecError`s, which are ValueErrors, and \
say what to change. Written by `python docs/api.py`.
"""
PACKAGE = Path(rhovec.__file__).parent
SECTIONS: dict[str, tuple[ModuleType, list[str]]] = {
    "Formulae": (rhovec, ["parse", "Formula", "simplify", "random_formulae", "Schema"]),
    "Requirement files": (rhovec, ["read_requirements", "Requirement"]),
    "Traces": (
        rhovec,
        ["read_traces", "read_logs", "resample", "derive", "TraceMeasure", "BaseMeasure"],
    ),
    "Robustness": (rhovec, ["robustness", "satisfaction", "evaluate_files", "embed_files"]),
    "Kernels": (
        rhovec,
        [
            "StlKernel",
            "BooleanKernel",
            "CentredKernel",
            "IntegratedKernel",
            "AnchorEmbedding",
            "KernelPCA",
        ],
    ),
    "Verdicts about logs": (rhovec, ["explain"]),
    "Relations": (rhovec, ["compare", "Comparison", "compare_sets", "SetComparison"]),
    "Mining": (rhovec, ["mine"]),
    "What mining answers: rhovec.mining": (
        rhovec.mining,
        ["Mined", "DecisionList", "Bounded", "read_labelled"],
    ),
    "Spaces": (rhovec, ["load", "Space", "Model", "RhovecWarning"]),
    "Search": (rhovec, ["Index", "Hit"]),
    "Published requirements: rhovec.library": (rhovec.library, ["requirements", "schemas"]),
    "scikit-learn: rhovec.sklearn": (rhovec.sklearn, ["StlVectorizer", "StlClassifier"]),
    "Errors": (rhovec, ["RhovecError", "ParseError"]),
}
MADE_ELSEWHERE = (
    "Formula",
    "Space",
    "Model",
    "Index",
    "Mined",
    "DecisionList",
    "Bounded",
)  # nobody calls their constructors
LIKE = dict.fromkeys(("BooleanKernel", "CentredKernel", "IntegratedKernel"), "StlKernel")


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def page() -> str:
    listed = [name for module, names in SECTIONS.values() for name in names if module is rhovec]
    assert {*listed, "errors"} == set(rhovec.__all__), "a public name is in no section"
    lines = [HEAD]
    for title, (module, names) in SECTIONS.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += describe(name, getattr(module, name))
        lines.append("")
    errors = [name for name, value in vars(rhovec.errors).items() if _is_error(value)]
    lines += [f"All are in `rhovec.errors`: {', '.join(f'`{name}`' for name in errors)}.", ""]
    lines += [
        "## Modules",
        "",
        "| | |",
        "|---|---|",
        *map(module_row, sorted(PACKAGE.rglob("*.py"))),
    ]
    return "\n".join(lines) + "\n"


def module_row(path: Path) -> str:
    """A module's name and the first paragraph of its docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    about = first_paragraph(text).replace("|", "\\|")
    return f"| `{path.relative_to(PACKAGE).as_posix()}` | {about} |"


def describe(name: str, value: object) -> Iterator[str]:
    """A function in a line; a class with a line for each public method and property."""
    yield f"- **`{name}{'' if name in MADE_ELSEWHERE else signature(value)}`**<br>{summary(value)}"
    if name in LIKE:
        yield f"  - the methods of `{LIKE[name]}`"
    elif inspect.isclass(value):
        for member, found in public_members(value).items():
            arguments = signature(found) if inspect.isfunction(found) else ""
            yield f"  - `.{member}{arguments}` {summary(found)}".rstrip()


def public_members(kind: type) -> dict[str, object]:
    """The methods and properties that rhovec defines, by name, those of a base first."""
    members: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("rhovec"):
            members |= vars(base)
    plain = {n: m.__func__ if isinstance(m, classmethod) else m for n, m in members.items()}
    return {
        name: member
        for name, member in plain.items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


class Unquoted(str):
    """An annotation that is shown as it is written."""

    __repr__ = str.__str__


def signature(value: object) -> str:
    """(a, b: int = 3) -> str, without self and with annotations as they are written."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return ""
    found = inspect.signature(value)
    shown = [
        p.replace(annotation=Unquoted(p.annotation))
        for p in found.parameters.values()
        if p.name not in ("self", "cls")
    ]
    back = found.return_annotation
    answer = found.empty if back in ("None", None, found.empty) else Unquoted(back)
    text = str(found.replace(parameters=shown, return_annotation=answer))
    return text.replace("<factory>", "...")


def summary(value: object) -> str:
    """The first paragraph of the docstring, in one line."""
    return first_paragraph(inspect.getdoc(value) or "")


def first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page())
