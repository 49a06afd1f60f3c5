"""Write the options of every verb as typed dictionaries, from the requests that declare them.

Run it from the root of the repository after an option has changed:

    python bench/typed_options.py --write src/layerscout/plans/typed_options.pyi
"""

import argparse
import textwrap
from dataclasses import fields
from pathlib import Path

from layerscout.plans import (
    CompareRequest,
    EvaluateRequest,
    PlanRequest,
    PredictRequest,
    ScanRequest,
    TuneRequest,
    explain_options,
    options_of,
)
from layerscout.tuning import RunOptions

HEAD = '''"""Options of the verbs, for editors; `make docs` writes them from the requests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from layerscout.plans.edits import Edit
from layerscout.plans.methods import Method
from layerscout.plans.options import Pooling
from layerscout.plans.papers import Classifier
from layerscout.plans.plan import Plan
from layerscout.plans.training import Batching, ClassWeights, Keep, Loss, Schedule
'''

# What each verb takes options of, its request first, and the option that is a parameter of its own.
VERBS = {
    "tune": ((TuneRequest, RunOptions), "plan"),
    "scan": ((ScanRequest,), None),
    "Scan.plan": ((PlanRequest,), "strategy"),
    "compare": ((CompareRequest,), None),
    "evaluate": ((EvaluateRequest,), None),
    "predict": ((PredictRequest,), None),
}


def write_class(verb: str) -> str:
    """Write the typed dictionary of a verb."""
    kinds, own = VERBS[verb]
    name = kinds[0].__name__.replace("Request", "Options")
    lines = [f"class {name}(TypedDict, total=False):", f'    """Options of `layerscout.{verb}`."""']
    for kind in kinds:
        types = {field.name: field.type for field in fields(kind)}
        for option, declared in options_of(kind).items():
            if option != own:
                text = f'"""{explain_options(kind)[option]}"""'
                taken = (declared.takes or types[option]).replace("'", '"')
                lines += ["", f"    {option}: {taken}"]
                lines.append(textwrap.indent(textwrap.fill(text, 96), "    "))
    return "\n".join(lines)


def write_page() -> str:
    """Write the whole file."""
    return "\n\n".join([HEAD.rstrip(), *map(write_class, VERBS)]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    parser.parse_args().write.write_text(write_page(), encoding="utf-8")
