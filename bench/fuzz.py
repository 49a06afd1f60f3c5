"""Try far more inputs on the loaders and notations than the tests do, and count them.

python bench/fuzz.py --effort 3300 --write docs/measured/fuzz.md
"""

import argparse
import getpass
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import table

ROOT = Path(__file__).parents[1]
EFFORT = 100

# What is fuzzed, by the test.
WHAT = {
    "test_data": "bytes of data files, altered",
    "test_values": "any values as texts and labels",
    "test_shards": "bytes of files that a cluster reads, altered",
    "test_plans": "notations of plans",
    "test_edits": "notations of edits",
    "test_recipes": "bytes of recipes (YAML), altered",
    "test_recipes_of_any_shape": "recipes of any shape",
    "test_scans": "bytes of `scan.json`, altered",
    "test_checkpoints": "bytes of a checkpoint's files, altered",
    "test_configs": "any value of `config.json`",
}
TEST = re.compile(r"test_fuzz\.py::(\w+)(?:\[(.+?)\])?:$")
PHASE = re.compile(r"phase \((\d+\.\d+) seconds\)")
CASES = re.compile(r"(\d+) passing, 0 failing")


def counted(statistics: str) -> dict[tuple[str, str], tuple[int, float]]:
    """Return inputs and seconds by test and parameter, from what hypothesis tells."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    test = ("", "")
    for line in statistics.splitlines():
        if match := TEST.search(line):
            test = (match[1], match[2] or "")
            found[test] = (0, 0.0)
        elif match := PHASE.search(line):
            found[test] = (found[test][0], found[test][1] + float(match[1]))
        elif match := CASES.search(line):
            found[test] = (found[test][0] + int(match[1]), found[test][1])
    if {name for name, _ in found} != WHAT.keys() or not all(n for n, _ in found.values()):
        raise SystemExit(f"the tests or their statistics are not as expected:\n{statistics}")
    return found


def fuzz(effort: int) -> str:
    """Run the tests where anything that they write outside their own folders is seen."""
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--hypothesis-show-statistics"]
    with tempfile.TemporaryDirectory() as place:
        home, temporary = Path(place, "home"), Path(place, "temporary")
        home.mkdir()
        temporary.mkdir()
        tests = subprocess.run(
            [*command, "-c", ROOT / "pyproject.toml", ROOT / "tests" / "test_fuzz.py"],
            cwd=home,
            env=os.environ
            | {
                "FUZZ_EFFORT": str(effort),
                "HOME": str(home),
                "XDG_CACHE_HOME": str(home),
                "TMPDIR": str(temporary),
                # What failed once is tried first from then on.
                "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        own = temporary / f"pytest-of-{getpass.getuser()}"
        strays = [*home.rglob("*"), *(path for path in temporary.iterdir() if path != own)]
    if tests.returncode:
        raise SystemExit(tests.stdout)
    if strays:
        raise SystemExit(f"written outside the folders of the tests: {strays}")
    return tests.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument(
        "--effort", type=int, default=EFFORT, help="how many times as many as `make test` tries"
    )
    given = parser.parse_args()
    if given.effort < 2:
        parser.error("--effort starts at 2; `make test` is 1")
    started = time.perf_counter()
    found = counted(fuzz(given.effort))
    minutes = (time.perf_counter() - started) / 60
    lines = [
        [WHAT[name] + (f": {part}" if part else ""), f"{inputs:,}", f"{seconds:.0f} s"]
        for (name, part), (inputs, seconds) in sorted(found.items())
    ]
    total = sum(inputs for inputs, _ in found.values())
    page = f"""# Fuzzing

`python bench/fuzz.py --effort {given.effort}` feeds inputs that nobody wrote by hand to loaders and
notations: {total:,} in {minutes:.0f} minutes. Each was either used, or refused as invalid input
(`InputError`), which the command line reports in one line, or in a list of all errors of a recipe,
within ten seconds and without a file outside the folders of the test. Any other outcome ends the
run without a page. Inputs differ in every run; the tests try some on every change
(`tests/test_fuzz.py`), and `make fuzz` many, in a few minutes.

{table(["what", "inputs", "time"], lines)}
"""
    print(page)
    if given.write:
        given.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
