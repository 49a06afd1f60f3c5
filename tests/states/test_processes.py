"""Other processes that the environment names, and that are not there."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

PROGRAM = """
from layerscout import progress
from layerscout.errors import InputError
from layerscout.states import make_accelerator

progress.WAIT_SECONDS = 0.5
try:
    print(make_accelerator().num_processes)
except InputError as error:
    print(error)
"""
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
REMEDY = "start several processes with accelerate launch, or unset"


def start(**named):
    """Start a process that makes an accelerator, and read what it says first."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | named,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    ("named", "line"),
    [
        ({"WORLD_SIZE": "2"}, "1"),  # nothing else names a second process: nobody is awaited
        ({"LOCAL_RANK": "0"}, f"with LOCAL_RANK: .* RANK expected, .*; {REMEDY} LOCAL_RANK"),
        ({"LOCAL_RANK": "x", "WORLD_SIZE": "2"}, f"'x'; {REMEDY} WORLD_SIZE LOCAL_RANK"),
        ({"ACCELERATE_USE_CPU": "1", "PMI_SIZE": "2"}, "with PMI_SIZE: .* `MASTER_ADDR`"),
    ],
)
def test_processes_that_cannot_be_joined_are_one_line(named, line):
    process = start(**named)
    text = process.communicate(timeout=120)[0]
    lines = [each for each in text.splitlines() if "Warning" not in each]
    assert len(lines) == 1 and re.search(line, lines[0]), text


@pytest.mark.whole
def test_who_is_awaited_is_said_and_ctrl_c_ends_it():
    process = start(WORLD_SIZE="2", **ALONE)
    line = process.stdout.readline()
    assert "waiting for other processes, which WORLD_SIZE=2, RANK=0" in line
    assert line.endswith("run: unset WORLD_SIZE RANK LOCAL_RANK MASTER_ADDR MASTER_PORT\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == -signal.SIGINT


@pytest.mark.whole
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("None", ["found", "found"]),
        ('UnsolvableError("all alike")', ["UnsolvableError all alike"] * 2),
        (
            'ValueError("odd")',
            ["ValueError odd", "LayerscoutError the first process failed: ValueError: odd"],
        ),
    ],
)
def test_what_the_first_process_raises_all_raise(fault, said):
    program = f"""
from layerscout.states import follow_first, is_first_process
from layerscout.tuning.solving import UnsolvableError

def find():
    fault = {fault}
    if fault is not None:
        raise fault
    return "found" if is_first_process() else "another"

try:
    print(follow_first(find), flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    named = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | named | {"RANK": rank, "LOCAL_RANK": rank, "ACCELERATE_USE_CPU": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        found = [process.communicate(timeout=240)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert found == said
