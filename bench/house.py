"""Count what a reader has to read: lines of code, files, functions, and what a command enters.

    python bench/house.py                                    # the whole package
    python bench/house.py --trace tune demo demo -o out -q   # what one command enters of it

A line of code is one that is left without blanks, comments, docstrings and imports, so that nobody
gains by squeezing lines. A class body that runs at import counts as a function that was entered.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import sys
import threading
import tokenize
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "layerscout"
LONGEST, MOST_PARAMETERS = 60, 12
# The function that tells the story of each verb.
STORIES = ("tune", "scan", "evaluate", "compare", "study")
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def number_code_lines(text: str) -> set[int]:
    """Return the numbers of the lines of code of a module."""
    apart: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            apart |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            # A docstring, which may stand below a field as well.
            apart |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - apart


def count_house() -> dict[str, Any]:
    """Count the package, and the lines of tests and benchmarks beside it."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    code = {path: number_code_lines(text) for path, text in texts.items()}
    functions = [
        (path, node)
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function)
    ]

    def count_lines(path: Path, node: Function) -> int:
        return len(code[path] & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))

    def count_parameters(node: Function) -> int:
        return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)

    sizes = [len(text.splitlines()) for path, text in texts.items() if path.name != "__init__.py"]
    rooms: dict[str, int] = {}
    for path, lines in code.items():
        room = path.relative_to(SOURCE).parts[0]
        rooms[room] = rooms.get(room, 0) + len(lines)
    return {
        "lines of code": sum(map(len, code.values())),
        "by room": rooms,
        "files": len(texts),
        "median file": statistics.median(sizes),
        "longest file": max(sizes),
        "functions": len(functions),
        "stories": {
            node.name: count_lines(path, node)
            for path, node in functions
            if node.name in STORIES and path.parent.name not in ("cli", "scores")
        },
        f"functions of over {LONGEST} lines of code": [
            f"{path.relative_to(SOURCE)}:{node.name}"
            for path, node in functions
            if count_lines(path, node) > LONGEST
        ],
        f"functions of over {MOST_PARAMETERS} parameters": [
            f"{path.relative_to(SOURCE)}:{node.name}"
            for path, node in functions
            if count_parameters(node) > MOST_PARAMETERS
        ],
        "lines of tests": count_files("tests"),
        "lines of benchmarks": count_files("bench"),
    }


def count_files(folder: str) -> int:
    """Count the lines of all Python files below a folder."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")
    )


def trace(arguments: list[str]) -> dict[str, Any]:
    """Run a command here, and count the functions and files of the package that it enters."""
    sys.path.insert(0, str(SOURCE.parent))
    import layerscout  # what is entered by importing it is not counted

    folder = f"{Path(layerscout.__file__).parent}/"
    entered: set[tuple[str, int]] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folder) and code.co_name[0] != "<":
            entered.add((code.co_filename, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    from layerscout.cli import main

    sys.argv = ["layerscout", *arguments]
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    sys.setprofile(None)
    files = {name for name, _ in entered}
    return {"exit status": status, "functions": len(entered), "files": len(files)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trace", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    arguments = parser.parse_args()
    figures = trace(arguments.trace) if arguments.trace else count_house()
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
