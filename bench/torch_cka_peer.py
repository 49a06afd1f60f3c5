"""Run torch_cka on saved states, in an environment that has it; `bench/compare.py` starts this.

    python torch_cka_peer.py STATES.npy THREADS REPEATS

The states (S, n, d) are given out by modules that hold them, one for each state, so that nothing
but CKA is timed; all n examples are one batch. Prints seconds and the matrix as JSON, in the first
round in float64.
"""

import contextlib
import io
import json
import sys
import time
import warnings
from importlib.metadata import version

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Held(nn.Module):
    def __init__(self, state: torch.Tensor) -> None:
        super().__init__()
        self.state = state

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.state[rows]


class Model(nn.Module):
    def __init__(self, states: torch.Tensor) -> None:
        super().__init__()
        self.states = nn.ModuleList([Held(state) for state in states])

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for state in self.states:
            found = state(rows)
        return found


def main() -> None:
    from torch_cka import CKA

    path, threads, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    states = torch.from_numpy(np.load(path)).double()
    torch.set_default_dtype(torch.float64)  # which its own vectors take
    count, n = states.shape[:2]
    names = [f"states.{number}" for number in range(count)]
    batch = DataLoader(TensorDataset(torch.arange(n)), batch_size=n)
    for repeat in range(repeats):
        if repeat == 1:  # the first round is for the values
            states = states.float()
            torch.set_default_dtype(torch.float32)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            one, other = Model(states), Model(states)
            cka = CKA(one, other, "one", "other", names, names, device="cpu")
            started = time.perf_counter()
            cka.compare(batch)
            seconds = time.perf_counter() - started
        about = {"seconds": seconds, "matrix": cka.export()["CKA"].tolist()}
        print(json.dumps(about | {"version": version("torch_cka")}), flush=True)
        sys.stdin.readline()  # its turn comes again


if __name__ == "__main__":
    main()
