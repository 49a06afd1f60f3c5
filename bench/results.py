"""Set what small encoders and a base-size one say beside the claims of the four papers.

Run the studies (hours; what has a record is not run again), keep their values, write the page:

    python bench/results.py --shared ../shared --run STUDIES
    python bench/results.py --shared ../shared --keep STUDIES
    python bench/results.py --shared ../shared --write docs/measured/results.md

With `--base MODEL`, the folder of all-mpnet-base-v2, the first two are about that one, as
`bench/base.py` says; all of its studies share one folder of records, with those of
`bench/advice/trials`. `--keep` copies what is new into `bench/base/trials`, from where `--run` goes
on.

What is kept of a study is `docs/measured/results/RECIPE.csv`, its summary without what nothing here
reads, and an entry in `docs/measured/results/studies.json`; in the folder `base` for that model.
The page is made from these alone.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from base import BASE
from claims import NEAR, STUDIES, Claim
from layerscout.reporting import place_side_by_side, save_chart, write_markdown
from layerscout.studies import Store, load_recipe, study, summarise, tidy_records
from layerscout.studies.charts import draw_figure
from lessons import summarise_verdicts
from writing import table

KEPT = Path(__file__).parents[1] / "docs" / "measured" / "results"
BASE_KEPT = KEPT / "base"
MODEL = "sentence-transformers/all-mpnet-base-v2"
# Records of the base-size model: those that the board of advice also reads, and the others.
RECORDS = [Path(__file__).parent / name / "trials" for name in ("advice", "base")]

# --- Running and keeping -------------------------------------------------------------------------


def encoders(both: bool, stacked: Path | str) -> dict[str, Any]:
    """Return what is set in a recipe to read the demo's encoder, or both."""
    return {"model": {"MiniLM-L6": "demo"} | ({"stacked-12": str(stacked)} if both else {})}


def copy_new(
    source: Path, target: Path, *others: Path, names: Mapping[str, str] | None = None
) -> None:
    """Copy the records that are neither in the target nor in the others.

    Args:
        source: the folder with records.
        target: the folder to copy to.
        others: folders whose records need no copy.
        names: by paths of this machine, what stands for them in a copy; no record depends on them.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.json"):
        if not any((folder / path.name).exists() for folder in (target, *others)):
            text = path.read_text(encoding="utf-8")
            for place, name in (names or {}).items():
                text = text.replace(place, name)
            (target / path.name).write_text(text, encoding="utf-8")


def run_base(studies: Path, shared: Path, model: Path, only: Sequence[str] = ()) -> None:
    """Run what a base-size model has no record of yet, and leave NAME.json for every study."""
    trials = studies / "trials"
    for folder in RECORDS:
        copy_new(folder, trials)
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
        advice, own = RECORDS
        names = {str(base): MODEL, str(shared / "data"): "DATA", str(studies): "STUDIES"}
        copy_new(studies / "trials", own, advice, names=names)


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

INTRODUCTION = """# What the papers say, and what encoders do

The recipes of [study.md](../study.md) were run on models that fit a laptop, and the results are
set beside what the four papers found, two of them on BERT-base and two mainly on larger models.
**A smaller model, or one tuned on less data, may disagree with a paper, and on several points it
does.** That says something about these models, little data and few epochs, not that a paper is
wrong."""

MODELS = """## Models and tasks

- **mpnet-base** is all-mpnet-base-v2: 12 blocks, 768 wide, 109M parameters, the size of the
  BERT-base of Tamkin et al. and Lodha et al. It was trained on sentence pairs, those of QNLI and
  MNLI among them.
- **MiniLM-L6** is the encoder of `layerscout demo`, all-MiniLM-L6-v2: 6 blocks, 384 wide. It was
  tuned on sentence pairs, including those of QQP, QNLI and MNLI, so it has seen these tasks.
- **stacked-12** has 12 blocks of the same width: each block of MiniLM-L6 twice, then three
  quarters of an hour of masked-word training. It is a real checkpoint, but a weak one.
- The tasks are those of GLUE and SuperGLUE, with some hundred to some thousand examples. CoLA is
  measured by Matthews correlation, QQP by F1, the others by accuracy.

`python bench/results.py --write docs/measured/results.md` writes this page from the values in
`docs/measured/results/`, which `--keep` extracts from the records of the studies."""

RULES = f"""The verdict is **held**, **not held** or **unclear**, by the rule that the claim states.
If there is an interval (Student's t, 95 %), a claim is held if the whole interval is on the claim's
side, not held if it is on the other side, and unclear if it covers both. If there is none, a claim
is held if it is true in every case that is listed (a task; where a study has only one, each edit of
the model), not held if in none, and unclear if there is only one case. A model on a task counts
once, as the mean over seeds. There are few of these, and two models of which one was made from the
other are hardly independent. "Near" means within {NEAR} of the metric. ℓ* of strategies is the
state with the lowest plug-in ν on all training examples."""

PAPERS = {
    "xie2022": "Xie et al. 2022: hidden-state variability",
    "phang2021": "Phang et al. 2021: CKA clusters",
    "tamkin2020": "Tamkin et al. 2020: partial reinitialisation",
    "lodha2023": "Lodha et al. 2023: Fisher-guided surgical tuning",
}


def there(folder: Path = KEPT) -> list[str]:
    """Name the studies that were run."""
    return [name for name in STUDIES if (folder / f"{name}.csv").exists()]


def claims(folder: Path = KEPT) -> list[Claim]:
    """Judge all claims."""
    names = there(folder)
    return [claim for name in names for claim in STUDIES[name].judge(name, kept(name, folder))]


def judge(folder: Path, level: str) -> list[str]:
    """Write a table of claims for each paper, under headings of a level such as "###"."""
    judged, parts = claims(folder), []
    for start, paper in PAPERS.items():
        rows = [
            # Two bare asterisks in a cell are emphasis in Markdown.
            [
                claim.text.replace("ℓ*", "ℓ\\*"),
                f"**{claim.verdict}**",
                claim.numbers,
                f"`{claim.recipe}`",
            ]
            for claim in judged
            if claim.recipe.startswith(start)
        ]
        if rows:
            heads = ["claim", "", "numbers", "recipe"]
            parts.append(f"{level} {paper}\n\n" + table(heads, rows))
    return parts


def means(name: str, title: str, rows: str, columns: str | Sequence[str], **more: Any) -> str:
    """Write a table of means."""
    asked = {"grid": None, "value": "metric", "spread": "error", "where": {}} | more
    frame = kept(name)
    if by := asked.pop("sort", None):
        frame = frame.sort_values(list(by), kind="stable")
    found = summarise(frame, rows=rows, columns=columns, **asked)
    return f"### {title}\n\n{write_markdown(found)}"


def tables() -> list[str]:
    """Write what the papers show as tables."""
    scores = ("variability_ratio", "cca", "numerical_rank", "mutual_information")
    correlations = [f"pearson:{key}" for key in (*scores, "variability_ratio_debiased")]
    sizes = ("task", "examples")
    heads = ["untuned", "tuned", "tuned_original"]
    found: list[tuple[str, str, str, Sequence[str], dict[str, Any]]] = [
        (
            "xie2022-table6",
            "Strategies by ℓ* (mean ± standard error over 3 seeds)",
            "plan",
            ("model", "task"),
            {},
        ),
        (
            "xie2022-scores",
            "Correlation of each score with probing (Xie et al., Table 1)",
            "measure",
            ("model", "task"),
            {"value": correlations},
        ),
        (
            "lodha2023-layers",
            "The k best blocks by Fisher information (mean ± standard error over 3 seeds)",
            "plan",
            ["task"],
            {},
        ),
        (
            "tamkin2020-incremental",
            "First blocks kept pretrained (mean ± standard error)",
            "kept",
            sizes,
            {"sort": sizes},
        ),
        (
            "phang2021-truncation",
            "Heads on every state of a tuned model, and of the original one (repeated "
            "values are the majority-class score)",
            "at",
            ("task", "measure"),
            {"value": heads, "spread": "none"},
        ),
    ]
    return [
        means(name, title, rows, columns, **more)
        for name, title, rows, columns, more in found
        if name in there()
    ]


# What is drawn: the recipe, the title of one of its figures, and the axes with a panel each.
DRAWN = {
    "tamkin2020-incremental": ("Metric by the number of pretrained blocks kept", ["task"]),
    "phang2021-truncation": ("Metric by the state that the head reads", ["task"]),
    "xie2022-table6": ("Metric over the number of tuned blocks", ["model", "task"]),
}


def draw() -> None:
    """Draw some of it."""
    for name, (title, panels) in DRAWN.items():
        if name not in there():
            continue
        recipe = load_recipe(name, small=True)
        [spec] = [one for one in recipe.figures if one.title == title]
        charts = [
            chart.properties(width=260, height=200)
            for chart in draw_figure(kept(name), spec, panels)
        ]
        save_chart(place_side_by_side(charts, min(3, len(charts))), KEPT / f"{name}.svg")


def command(name: str) -> str:
    """Write the command of a study."""
    models = ", ".join(
        f"{k}: {v}" for k, v in encoders(STUDIES[name].both, "STACKED")["model"].items()
    )
    return f"layerscout study {name} --small --set 'model={{{models}}}' --data DATA"


def page() -> str:
    """Write the page from what is kept."""
    parts = [INTRODUCTION, summarise_verdicts(claims(BASE_KEPT), claims(KEPT)), MODELS]
    parts += [f"## How claims are judged\n\n{RULES}"]
    if there(BASE_KEPT):
        parts += [f"## A base-size model\n\n{list_runs(BASE_KEPT)}", *judge(BASE_KEPT, "###")]
    parts += ["## Small encoders", *judge(KEPT, "###")]
    parts.append("## Values of small encoders")
    parts += tables()
    parts += [
        f"### {title} (`{name}`)\n\n![{title}](results/{name}.svg)"
        for name, (title, _) in DRAWN.items()
        if name in there()
    ]
    told = read_runs(KEPT)
    versions = ", ".join(f"{k} {v}" for k, v in sorted(told["xie2022-scores"]["versions"].items()))
    hours = sum(one["hours"] for one in told.values())
    rows = [[f"`{command(n)}`", str(told[n]["trials"]), f"{told[n]['hours']:.2f}"] for n in there()]
    parts.append(
        "## How small encoders were run\n\nMost on one core per study, two at a time and alongside "
        "other work; `tamkin2020-localized`, `tamkin2020-epochs`, `xie2022-deberta`, "
        "`xie2022-table7` and `lodha2023-released` on a GPU. The hours are not a benchmark; "
        f"{hours:.1f} in all. {versions}, others on the GPU. DATA holds the tasks "
        "(`DATA/cola/train.parquet`, ...), STACKED is the folder of stacked-12.\n\n"
        + table(["command", "trials", "hours"], rows)
    )
    left = [f"- `{n}`: {why}." for n in there() for why in told[n]["refused"]]
    if missing := [name for name in STUDIES if name not in there()]:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    if left:
        parts.append("What could not be run:\n\n" + "\n".join(left))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def read_runs(folder: Path) -> dict[str, Any]:
    """Read what is known of the studies that were kept, by name."""
    found: dict[str, Any] = json.loads((folder / "studies.json").read_text())
    return found


def list_runs(folder: Path) -> str:
    """Say which studies ran on the base-size model, and which did not yet."""
    told, names = read_runs(folder), there(folder)
    hours = sum(told[name]["hours"] for name in names)
    rows = [[f"`{n}`", str(told[n]["trials"]), f"{told[n]['hours']:.2f}"] for n in names]
    missing = [name for name in BASE if name not in names]
    text = (
        "`python bench/results.py --base MODEL --run STUDIES`, with the changes of "
        "`bench/base.py`: fewer tasks, seeds and plans than a recipe has, and the trainings of "
        "the recipe `advice`, which studies share. Those trainings and `xie2022-scores` ran on "
        "one core of a CPU, most of the rest on an NVIDIA H200 in twenty processes at a time, so "
        "the hours are not a benchmark. With two to five tasks and at most three seeds intervals "
        "are wide. "
        f"{hours:.1f} hours.\n\n" + table(["recipe", "trials", "hours"], rows)
    )
    return text + (f"\n\nNot run yet: {', '.join(missing)}." if missing else "")


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
        given.write.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
