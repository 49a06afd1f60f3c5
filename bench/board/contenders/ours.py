"""layerscout, as its command line comes; options are those of `tune`."""

import subprocess
import sys
from pathlib import Path

from contender import Given, Predict, compete


def make(given: Given) -> None:
    cli = str(Path(sys.executable).with_name("layerscout"))
    columns = ["--text", "text", "--label", "label"]
    asked = ["-o", str(given.folder), "--seed", str(given.seed), "--quiet", *given.rest]
    subprocess.run([cli, "tune", given.model, str(given.path), *columns, *asked], check=True)


def load(given: Given) -> Predict:
    import layerscout

    return layerscout.load(given.folder, given.model).predict_proba


if __name__ == "__main__":
    compete(make, load)
