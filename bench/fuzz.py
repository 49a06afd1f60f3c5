"""Try far more inputs on the loaders and notations than the tests do, and count them.

python bench/fuzz.py --write docs/fuzz.md
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from measuring import table

ROOT = Path(__file__).parents[1]
EFFORT = 50

# What is fuzzed, by the test.
WHAT = {
    "test_data": "bytes of data files, altered",
    "test_plans": "notations of plans",
    "test_edits": "notations of edits",
    "test_recipes": "bytes of recipes (YAML), altered",
    "test_recipes_of_any_shape": "recipes of any shape",
    "test_scans": "bytes of `scan.json`, altered",
    "test_checkpoints": "bytes of a checkpoint's files, altered",
    "test_configs": "any value of `config.json`",
}
COUNTED = re.compile(
    r"^tests/test_fuzz\.py::(\w+)(?:\[(.+?)\])?:\n\n.*?\((\d+\.\d+) seconds\):\n"
    r".*?(\d+) passing, (\d+) failing, and (\d+) invalid test cases",
    flags=re.MULTILINE | re.DOTALL,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--hypothesis-show-statistics"]
    started = time.perf_counter()
    tests = subprocess.run(
        [*command, "tests/test_fuzz.py"],
        cwd=ROOT,
        env=os.environ | {"FUZZ_EFFORT": str(EFFORT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    minutes = (time.perf_counter() - started) / 60
    if tests.returncode:
        raise SystemExit(tests.stdout)
    lines, total = [], 0
    for name, part, seconds, passed, failed, _ in sorted(COUNTED.findall(tests.stdout)):
        what = f"{WHAT[name]}: {part}" if part else WHAT[name]
        lines.append([what, f"{int(passed) + int(failed):,}", failed, f"{float(seconds):.0f} s"])
        total += int(passed) + int(failed)
    page = f"""# Any input

`make fuzz` gives loaders and notations inputs that nobody wrote by hand: {total:,} in
{minutes:.1f} minutes. Each has to be used, or refused as bad input in one line (`InputError`);
whatever else comes out is a failure, and would stop here. Inputs are new in every run. The tests
try some on every change (`tests/test_fuzz.py`).

{table(["what", "inputs", "failures", "time"], lines)}
"""
    print(page)
    if given.write:
        given.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
