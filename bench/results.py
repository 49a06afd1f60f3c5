"""Set what small encoders and a base-size one say beside the claims of the four papers.

Run the studies (hours; what has a record is not run again), keep their values, write the page:

    python bench/results.py --shared ../shared --run STUDIES
    python bench/results.py --shared ../shared --keep STUDIES
    python bench/results.py --shared ../shared --write docs/measured/results.md

With `--base MODEL`, the folder of all-mpnet-base-v2, the first two are about that one, as
`bench/base.py` says; all of its studies share one folder of records. `--keep` copies what is new
into `bench/base/trials`, from where `--run` goes on.

What is kept of a study is `docs/measured/results/RECIPE.csv`, its summary without what nothing
here reads, and an entry in `docs/measured/results/studies.json`; in the folder `base` for that
model. The page, its picture and `claims.csv` beside them, every claim with its numbers, are made
from these alone.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from base import BASE
from claims import HELD, MARGIN, NEAR, NO_EFFECT, NOT_HELD, STUDIES, UNCLEAR, Claim
from layerscout.reporting import place_side_by_side, save_chart
from layerscout.studies import Store, load_recipe, study, tidy_records
from layerscout.studies.charts import draw_figure
from lessons import list_lessons
from writing import table, write_rows

KEPT = Path(__file__).parents[1] / "docs" / "measured" / "results"
# Of the base-size model; and of pairs of a model and a task that no study has, plans on 640 rows
# (1,000 of emotions27) from a former benchmark of advice.
BASE_KEPT, MORE_KEPT = KEPT / "base", KEPT / "more"
CLAIMS = KEPT / "claims.csv"
MODEL = "sentence-transformers/all-mpnet-base-v2"
RECORDS = Path(__file__).parent / "base" / "trials"  # of the base-size model

# --- Running and keeping -------------------------------------------------------------------------


def encoders(both: bool, stacked: Path | str) -> dict[str, Any]:
    """Return what is set in a recipe to read the demo's encoder, or both."""
    return {"model": {"MiniLM-L6": "demo"} | ({"stacked-12": str(stacked)} if both else {})}


def copy_new(source: Path, target: Path, names: Mapping[str, str] | None = None) -> None:
    """Copy the records that are not in the target.

    Args:
        source: the folder with records.
        target: the folder to copy to.
        names: by paths of this machine, what stands for them in a copy; no record depends on them.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.json"):
        if not (target / path.name).exists():
            text = path.read_text(encoding="utf-8")
            for place, name in (names or {}).items():
                text = text.replace(place, name)
            (target / path.name).write_text(text, encoding="utf-8")


def run_base(studies: Path, shared: Path, model: Path, only: Sequence[str] = ()) -> None:
    """Run what a base-size model has no record of yet, and leave NAME.json for every study."""
    trials = studies / "trials"
    copy_new(RECORDS, trials)
    for name in only or BASE:
        print(name)
        changes = {"model": {"mpnet-base": str(model)}, **BASE[name]}
        study(name, studies, small=True, changes=changes, data=shared / "data")
        shutil.copy(studies / "study.json", studies / f"{name}.json")


def run(studies: Path, shared: Path) -> None:
    """Run what has no record yet."""
    for name, evidence in STUDIES.items():
        print(name)
        study(
            name,
            studies / name,
            small=True,
            changes=encoders(evidence.both, shared / "models" / "stacked-minilm-12"),
            data=shared / "data",
        )


def keep(studies: Path, shared: Path, base: Path | None = None) -> None:
    """Keep the values of every study that is there whole; those of the base-size model apart."""
    kept = BASE_KEPT if base else KEPT
    kept.mkdir(exist_ok=True)
    path = kept / "studies.json"
    told = json.loads(path.read_text()) if path.exists() else {}
    for name, evidence in STUDIES.items():
        folder = studies if base else studies / name
        made = folder / (f"{name}.json" if base else "study.json")
        if not made.exists():
            continue
        content = json.loads(made.read_text())
        store = Store(folder)
        records = {
            cell["trial"]: store.read(cell["trial"]) for cell in content["cells"] if cell["trial"]
        }
        if not all(record and record["status"] == "done" for record in records.values()):
            raise SystemExit(f"{name} has trials that failed or have not run; see its report")
        frame = tidy_records(content, store.read)
        measures = frame["measure"].fillna("")
        read = measures.str.startswith(evidence.measures) & ~measures.str.contains("_by_")
        frame = frame[(read | measures.isin(evidence.measures)) & frame["selected"]]
        left = ["status", "selected", *(axis for axis in frame if frame[axis].isna().all())]
        frame = frame.drop(columns=left).assign(trial=frame["trial"].str[:12])
        frame["value"] = frame["value"].map(lambda value: f"{value:.6g}")
        for column in ("at", "model"):
            if base and column in frame:
                frame[column] = frame[column].map(
                    lambda one: one.replace(str(base), MODEL) if isinstance(one, str) else one
                )
        frame.to_csv(kept / f"{name}.csv", index=False)
        known = [record for record in records.values() if record]
        told[name] = {
            "trials": len(known),
            "hours": round(sum(record["seconds"] for record in known) / 3600, 2),
            "versions": known[0]["versions"],
            "refused": sorted(
                {cell["refused"] for cell in content["cells"] if cell.get("refused")}
            ),
        }
    path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    if base:
        names = {str(base): MODEL, str(shared / "data"): "DATA", str(studies): "STUDIES"}
        copy_new(studies / "trials", RECORDS, names)


def kept(name: str, folder: Path = KEPT) -> pd.DataFrame:
    """Read the values that were kept of a study, as `tidy_records` gives them."""
    frame = pd.read_csv(folder / f"{name}.csv", dtype={"seed": str, "trial": str})
    absent = {"at": None, "status": "done", "selected": True}
    frame = frame.assign(
        **{column: value for column, value in absent.items() if column not in frame}
    )
    frame["at"] = [_number(at) for at in frame["at"]]
    return frame


def _number(at: Any) -> Any:
    """Read a state's number, where it is one."""
    try:
        return int(float(at)) if pd.notna(at) else None
    except ValueError:
        return at


# --- The page ------------------------------------------------------------------------------------

PAPERS = {
    "xie2022": "Xie et al. 2022: hidden-state variability",
    "phang2021": "Phang et al. 2021: CKA clusters",
    "tamkin2020": "Tamkin et al. 2020: partial reinitialisation",
    "lodha2023": "Lodha et al. 2023: Fisher-guided surgical tuning",
}


def there(folder: Path = KEPT) -> list[str]:
    """Name the studies that were run."""
    return [name for name in STUDIES if (folder / f"{name}.csv").exists()]


def claims(*folders: Path) -> list[Claim]:
    """Judge all claims; of several folders those about pairs of a model and a task, on them all."""
    found = []
    for name, evidence in STUDIES.items():
        frames = [kept(name, folder) for folder in folders if name in there(folder)]
        if frames and (evidence.pairs or len(folders) == 1):
            judged = evidence.judge(pd.concat(frames))
            found += [replace(claim, recipe=name) for claim in judged]
    return found


SIZES: Mapping[str, Sequence[Path]] = {
    "base size": (BASE_KEPT,),
    "small encoders": (KEPT,),
    "all pairs": (BASE_KEPT, KEPT, MORE_KEPT),
}

# What is drawn: the recipe, the title of one of its figures, and the axes with a panel each.
DRAWN = ("xie2022-table6", "Metric over the number of tuned blocks", ["model", "task"])


def draw() -> None:
    """Draw what strategies reach on small encoders."""
    name, title, panels = DRAWN
    [spec] = [one for one in load_recipe(name, small=True).figures if one.title == title]
    charts = [
        chart.properties(width=260, height=200) for chart in draw_figure(kept(name), spec, panels)
    ]
    save_chart(place_side_by_side(charts, 3), KEPT / f"{name}.svg")


def list_claims() -> list[list[str]]:
    """Return a row for each claim and size of models: the paper, the verdict and its numbers."""
    return [
        [size, paper, claim.text, claim.verdict, claim.numbers, claim.recipe]
        for size, folders in SIZES.items()
        for claim in claims(*folders)
        for start, paper in PAPERS.items()
        if claim.recipe.startswith(start)
    ]


def count_verdicts(rows: Sequence[Sequence[str]]) -> str:
    """Write how many claims of each paper are judged how."""
    verdicts = (HELD, NOT_HELD, NO_EFFECT, UNCLEAR)
    kinds = [(size, verdict) for size in SIZES for verdict in verdicts]
    columns = ["", *(f"{size}: {verdict}" for size, verdict in kinds)]
    lines = [
        [
            paper,
            *(
                str(sum(row[:2] == [size, paper] and row[3] == v for row in rows))
                for size, v in kinds
            ),
        ]
        for paper in PAPERS.values()
    ]
    sums = (
        str(sum(row[0] == size and row[3] == verdict for row in rows)) for size, verdict in kinds
    )
    return table(columns, [*lines, ["all", *sums]])


def page() -> str:
    """Write the page from what is kept."""
    base, small = (list_runs(folder) for folder in (BASE_KEPT, KEPT))
    return f"""# Do the claims of four papers hold on models that fit a laptop?

{list_lessons(*(claims(*folders) for folders in SIZES.values()))}

Most of what is unclear is so because a few tasks and seeds cannot tell; that says something about
these models, little data and few epochs, not that a paper is wrong. Counting each claim once, on
all pairs where it is about pairs, else at base size, {count_unclear(list_claims())} are unclear.
[Every claim](results/claims.csv) has its verdict, its numbers with their interval, and its recipe.

{count_verdicts(list_claims())}

![{DRAWN[1]}](results/{DRAWN[0]}.svg)

{DRAWN[1]}, small encoders (`{DRAWN[0]}`).

**The models.** Base size: mpnet-base (all-mpnet-base-v2, 12 blocks, 768 wide), {base}, with fewer
tasks, seeds and plans than a recipe has (`bench/base.py`). Small: MiniLM-L6 (all-MiniLM-L6-v2,
the demo's) and stacked-12, a weak model of 12 blocks made from it, {small}. All were trained on
sentence pairs, those of QNLI, MNLI and QQP among them. Tasks are those of GLUE and SuperGLUE,
with some hundred to some thousand texts.

"All pairs" are of both, with 14 more of plans on 640 rows (1,000 of emotions27), SmolLM2-135M's
among them; on so few rows ℓ\\* is often the top, where there is nothing to compare.

**The verdicts.** If there is an interval (Student's t, 95 %, over pairs of a model and a task, each
the mean over seeds), a claim is held if all of it is on the claim's side, not held if on the other,
else unclear. That plans differ by less than {100 * MARGIN:.0f} point is a verdict of its own,
"{NO_EFFECT}" (two one-sided tests at 5 %). Without an interval a claim is held
if true in every case that is listed, not held if in none, and unclear if there is only one. "Near"
means within {NEAR} of the metric; ℓ\\* is the state with the lowest plug-in ν on all training
examples.

`python bench/results.py --run STUDIES` runs what has no record, with `--base MODEL` on that
model; `--keep STUDIES` extracts the values, and `--write docs/measured/results.md` makes this
page from them.
"""


def count_unclear(rows: Sequence[Sequence[str]]) -> str:
    """Say how many claims end unclear: on all pairs if they are judged there, else at base size."""
    base, _, pairs = ({(row[5], row[2]): row[3] for row in rows if row[0] == s} for s in SIZES)
    verdicts = [*(base | pairs).values()]
    return f"{verdicts.count(UNCLEAR)} of {len(verdicts)}"


def list_runs(folder: Path) -> str:
    """Say how many trials of how many studies there are, and how long they took."""
    runs = read_runs(folder).values()
    trials, hours = (sum(run[name] for run in runs) for name in ("trials", "hours"))
    return f"{trials:,} trials of {len(runs)} recipes, {hours:.0f} hours"


def read_runs(folder: Path) -> dict[str, Any]:
    """Read what is known of the studies that were kept, by name."""
    found: dict[str, Any] = json.loads((folder / "studies.json").read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--run", type=Path, metavar="STUDIES")
    parser.add_argument("--keep", type=Path, metavar="STUDIES")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--base", type=Path, metavar="MODEL")
    parser.add_argument("--only", nargs="*", default=(), choices=BASE, help="of --base --run")
    given = parser.parse_args()
    if given.run and given.base:
        run_base(given.run, given.shared, given.base, given.only)
    elif given.run:
        run(given.run, given.shared)
    if given.keep:
        keep(given.keep, given.shared, given.base)
    if given.write:
        draw()
        columns = ("models", "paper", "claim", "verdict", "numbers", "recipe")
        write_rows(CLAIMS, columns, list_claims())
        given.write.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
