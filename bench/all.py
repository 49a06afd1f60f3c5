"""Run every benchmark in brief, one after another, and make one page of them.

Run it alone on the machine:

    python bench/all.py --write docs/measured/benchmarks.md

Each stands in a process of its own, on the processor and then on the accelerator, where there is
one. The pages that the scripts write by themselves have the same sections, from more examples and
repeats.
"""

import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import torch

from measuring import Section, given, machine, options, write_page

SCRIPTS = ("scan", "tune", "methods", "scores", "compare", "study")

# The scripts that run a peer in an environment of its own, by the option that names its Python.
PEERS = {"scores": "--ranker-python", "compare": "--torch-cka-python"}


def section(text: str, script: str, device: str, seconds: float) -> Section:
    """Make a section of a script's page."""
    text = text.removeprefix("# ").replace("\n## ", "\n### ")
    title, *parts = text.replace(f"Written by `python bench/{script}.py`. ", "").split("\n\n")
    command = f"python bench/{script}.py --brief"
    if device == "cpu":
        parts = [part for part in parts if part != machine()]  # which heads the page
    else:
        title, command = f"{title}, on {device}", f"{command} --device {device}"
    return Section(title, "\n\n".join([f"`{command}`: {seconds:.0f} s.", *parts]))


def main() -> None:
    parser = options(__doc__ or "", brief=False)
    for script, option in PEERS.items():
        parser.add_argument(option, dest=script, type=Path, metavar="PYTHON")
    arguments = given(parser)
    devices = ["cpu"]
    if torch.accelerator.is_available():
        devices.append(str(torch.accelerator.current_accelerator()))
    sections, began = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for device, script in product(devices, SCRIPTS):
            page = Path(folder) / f"{script}.md"
            command = [sys.executable, str(Path(__file__).with_name(f"{script}.py")), "--brief"]
            command += ["--device", device, "--shared", str(arguments.shared), "--write", str(page)]
            if python := vars(arguments).get(script):
                command += [PEERS[script], str(python)]
            print(f"{script}.py on {device}", file=sys.stderr, flush=True)
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - started
            sections.append(section(page.read_text("utf-8").rstrip(), script, device, seconds))
    minutes = (time.perf_counter() - began) / 60
    introduction = (
        f"# Benchmarks\n\n`make bench` writes this page; it took {minutes:.0f} minutes. Ratios "
        "compare alternatives that took turns in one run: the median over repeats, with the "
        "minimum and the maximum. With so few examples, one-off costs weigh heavily; the pages "
        "that the scripts write without `--brief` have more examples and repeats."
    )
    write_page(introduction, sections, arguments.write)


if __name__ == "__main__":
    main()
