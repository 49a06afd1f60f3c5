"""Seeded faults: each is put into a copy of the package, and the fast tests should notice it.

    python bench/mutations.py --check                           # only whether each can be put there
    python bench/mutations.py --write docs/measured/mutations.md

`bench/faults.csv` lists them: `old` stands once in `file` and becomes `new`, and `tests` should
fail; `noticed_by` is the first that did.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from writing import link, read_rows, write_rows

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "bench" / "faults.csv"


@dataclass(frozen=True)
class Fault:
    """A fault, as the table has it; tests are parted by spaces."""

    file: str
    old: str
    new: str
    what: str
    tests: str
    noticed_by: str


def place(fault: Fault, text: str) -> str:
    """Put a fault into the text of its file.

    Raises:
        SystemExit: if what it replaces does not stand there exactly once: the code has changed.
    """
    if (count := text.count(fault.old)) != 1:
        raise SystemExit(f"{fault.file} holds {fault.old!r} {count} times, not once")
    return text.replace(fault.old, fault.new)


def read_source(tree: Path, fault: Fault) -> str:
    """Read the file of a fault; "" where there is none."""
    path = tree / "src" / "layerscout" / fault.file
    return path.read_text(encoding="utf-8") if path.exists() else ""


def copy_tree(folder: str) -> Path:
    """Copy what the tests need."""
    tree = Path(folder) / "layerscout"
    for name in ("src", "tests", "docs", "bench"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def run_tests(tests: str, fault: Fault | None, marker: str) -> str:
    """Run tests, with a fault or without; give the first that failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(folder)
        if fault is not None:
            text = place(fault, read_source(tree, fault))
            (tree / "src" / "layerscout" / fault.file).write_text(text, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-m",
            marker,
        ]
        done = subprocess.run(
            [*command, *(f"tests/{name}" for name in tests.split())],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tests}: the tests could not run\n{done.stdout[-2000:]}")
    titles = [line.strip("_ ") for line in done.stdout.splitlines() if line.startswith("____")]
    return (titles[0] if titles else "?") if done.returncode else ""


PAGE = """# Do the quick tests notice faults?

Of {run} faults that were put into copies of the package, one at a time, the tests of `make test`
that belong to the place noticed {noticed}. They are wrong signs, lost terms, keys that leave
something out and states that are not restored, in scores, plans, trunks, saving and resuming.{new}

`make mutations` does this again, in about an hour. The list has each fault and the first test that
noticed it: {faults}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", action="store_true", help="only see that each text is there")
    parser.add_argument("--only", default="", help="faults of files with this in their names")
    parser.add_argument("-m", dest="marker", default="not whole", help="as of pytest")
    given = parser.parse_args()
    faults = [Fault(**row) for row in read_rows(FAULTS)]
    for fault in faults:  # an hour of runs follows
        place(fault, read_source(ROOT, fault))
    if given.check:
        return
    chosen = [fault for fault in faults if given.only in fault.file]
    # Tests that fail by themselves would notice any fault.
    for tests in sorted({fault.tests for fault in chosen}):
        if failed := run_tests(tests, None, given.marker):
            raise SystemExit(f"{failed} fails without a fault")
    for number, fault in enumerate(faults):
        if fault in chosen:
            test = run_tests(fault.tests, fault, given.marker) or "MISSED"
            print(f"{fault.file}: {fault.what}: {test}", file=sys.stderr, flush=True)
            faults[number] = replace(fault, noticed_by=test)
    if given.write:
        names = [field.name for field in fields(Fault)]
        write_rows(FAULTS, names, [astuple(fault) for fault in faults])
        given.write.write_text(write_page(faults), encoding="utf-8")


def write_page(faults: list[Fault]) -> str:
    """Say how many were noticed of those that were tried."""
    run = [fault for fault in faults if fault.noticed_by]
    noticed = sum(fault.noticed_by != "MISSED" for fault in run)
    left = len(faults) - len(run)
    new = f"\n{left} more were added since." if left else ""
    return PAGE.format(run=len(run), noticed=noticed, new=new, faults=link(FAULTS))


if __name__ == "__main__":
    main()
