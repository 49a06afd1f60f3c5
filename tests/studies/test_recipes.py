"""Recipes: what ships is whole, and what is wrong is told all at once."""

import inspect
import json
from pathlib import Path

import pytest

import layerscout as ls
from inputs import expect_refused
from layerscout.data import KNOWN, benchmark
from layerscout.errors import InputError
from layerscout.studies import (
    Recipe,
    apply_change,
    arguments,
    estimate,
    expand_sweep,
    list_recipes,
    load_recipe,
    make_recipe,
    read_value,
    recipe as recipes,
)
from layerscout.studies.trial import DRAWING

GRID = {"axes": {"model": ["demo"], "task": ["demo"]}, "settings": {"plan": "top:1"}}


def recipe(**grid):
    return {"title": "a title", "grids": {"tuned": {**GRID, **grid}}}


def faults(content):
    with pytest.raises(InputError) as raised:
        make_recipe(content)
    heading, *several = str(raised.value).split("\n")
    return several or [heading.removeprefix("the recipe has a fault: ")]


@pytest.mark.parametrize("name", list_recipes())
@pytest.mark.parametrize("small", [False, True])
def test_what_ships_is_whole_and_names_its_source_and_cost(name, small):
    found = load_recipe(name, small=small)
    paper = name.split("-")[0]
    assert found.source.lower().startswith(f"{paper[:-4]} et al. {paper[-4:]}, ")
    assert found.cost and (found.tables or found.figures)
    models = [m for grid in found.grids.values() for m in grid.axes.get("model", [])]
    tasks = {t for grid in found.grids.values() for t in grid.axes.get("task", [])}
    assert models and tasks <= KNOWN.keys()
    assert not small or set(models) == {"demo"}


def test_null_takes_a_setting_out():
    found = load_recipe("xie2022-table10", small=True, changes={"learning_rate": None})
    assert "learning_rate" not in found.grids["tuned"].settings
    assert found.grids["tuned"].settings["epochs"] == 1
    changes = {"grids.tuned.rates": None, "axes.seed": None}
    found = load_recipe("lodha2023-layers", small=True, changes=changes)
    assert not found.grids["tuned"].rates and "seed" not in found.grids["tuned"].axes


@pytest.mark.parametrize(
    ("paper", "figures", "tables", "others"),
    [
        ("xie2022", 17, 12, {"Figure 1", "Figure 2", "Table 3", "Table 4", "Table 5"}),
        ("phang2021", 7, 0, set()),
        ("tamkin2020", 8, 2, {"Figure 1", "Table 2"}),
        ("lodha2023", 7, 5, {"Table 1", "Table 2", "Table 3"}),
    ],
)
def test_every_experiment_of_the_papers_has_a_recipe(paper, figures, tables, others):
    shown = [load_recipe(n).shows for n in list_recipes() if n.startswith(paper)]
    assert all(how.strip() for one in shown for how in one.values())
    items = {f"Figure {n + 1}" for n in range(figures)} | {f"Table {n + 1}" for n in range(tables)}
    assert {item for one in shown for item in one if not item.startswith("App.")} == items - others


def test_papers_go_by_their_own_ratio_on_all_rows():
    for name in ("xie2022-table6", "xie2022-table7", "xie2022-middle", "xie2022-deberta"):
        settings = load_recipe(name).grids["tuned"].settings
        assert settings["score"] == "variability_ratio" and settings["scan_examples"] == "all"
    for name in list_recipes():  # Xie et al. 2022, §4: five seeds
        for grid in load_recipe(name).grids.values():
            if grid.settings.get("probe") == "family":
                assert grid.settings["probe_seeds"] == 5
    assert load_recipe("lodha2023-layers").metric == {"mrpc": "accuracy", "qqp": "accuracy"}
    assert len(load_recipe("xie2022-table6").grids["tuned"].axes["plan"]) == 13


def test_papers_train_as_they_say():
    """Dropout also in frozen blocks (Xie App. B); 512 tokens (Lodha), where BoolQ is whole."""
    for name in list_recipes():
        for small in (False, True):
            found = load_recipe(name, small=small)
            for grid in (grid for grid in found.grids.values() if grid.verb == "tune"):
                given = grid.settings
                assert given["preset"] == name.split("-")[0]
                plans = grid.axes.get("plan") or [given["plan"]]
                freezes = not all(plan == "full" or plan.startswith("emb+") for plan in plans)
                assert given.get("trunk_dropout", False) == (freezes and not small), name
                length = 512 if name.startswith("lodha2023") and not small else 128
                assert given.get("max_length", 128) == length
                if name.startswith("phang2021"):
                    assert "max_length" in given
                if name != "lodha2023-released":
                    assert given.get("batching") == ("length" if small else None)


def test_lodha_as_released_tunes_embeddings_in_every_run_on_its_own_inputs():
    grid = load_recipe("lodha2023-released").grids["tuned"]
    text = load_recipe("lodha2023-layers").grids["tuned"]
    assert grid.settings["as_released"] and grid.settings["preset"] == "lodha2023"
    assert [plan.removeprefix("emb+") for plan in grid.axes["plan"]] == text.axes["plan"]
    assert all(plan == "full" or plan.startswith("emb+") for plan in grid.axes["plan"])
    own = {task for task in grid.axes["task"] if "@" in task}
    assert own == {f"{task}@lodha2023" for task in ("boolq", "copa", "multirc", "wic")}
    assert {benchmark(task) for task in grid.axes["task"]} == set(text.axes["task"])


def test_every_fault_is_told_at_once():
    content = read_value("""
        titel: x
        title: x
        grids:
          tuned:
            axes: {model: [demo], seed: [0, 0], epochs: []}
            rates: {full: [0.0]}
    """)
    assert faults(content) == [
        "- grids.tuned.axes.seed: 0 appears twice; remove one",
        "- grids.tuned.axes.epochs: an axis is a list of one or more values, got []",
        "- grids.tuned.rates.full.0: Input should be greater than 0, got 0.0",
        "- unknown key 'titel', did you mean 'title'? known: " + ", ".join(Recipe.model_fields),
    ]


def test_all_that_does_not_go_together_is_told_at_once():
    content = read_value("""
        title: x
        grids:
          tuned:
            axes: {model: [demo], epochs: [3], plan: ["topp:2"]}
            settings: {epoch: 3, score: fischer, edits: reinit, epochs: 0}
          read: {verb: evaluate, axes: {model: [demo], task: [demo]}}
          seen: {verb: scan, of: tunde, settings: {scores: ccca}}
    """)
    told = faults(content)
    for words in (
        "grids.tuned.axes.epochs: also given under settings",
        "grids.tuned.axes.plan: unknown strategy 'topp:2'",
        "grids.tuned.settings.epoch: unknown argument 'epoch', did you mean 'epochs'?",
        "grids.tuned.settings.score: unknown score 'fischer', did you mean 'fisher'?",
        "grids.tuned.settings.epochs: `epochs` must be a whole number from 1 on, got 0",
        "grids.tuned.task: a grid of tune needs a task",
        "grids.seen.settings.scores: unknown score 'ccca'",
        "grids.tuned.settings.edits",
    ):
        assert any(words in line for line in told), (words, told)


def setting(**settings):
    """Return a recipe with these settings and a plan."""
    return recipe(settings={"plan": "full", **settings})


def axis(**axes):
    """Return a recipe with these axes beside model and task."""
    return recipe(axes={**GRID["axes"], **axes})


def reading(verb, **grid):
    """Return a recipe with a grid that reads the models of another one."""
    content = recipe(**grid.pop("tuned", {}))
    content["grids"]["read"] = {"verb": verb, "of": "tuned", **grid}
    return content


def table(**spec):
    """Return a recipe with a table."""
    return recipe() | {"tables": [{"title": "t", **spec}]}


HEADS = {"tune_heads": True, "edits": ["skip"]}
KEPT = {"settings": {**GRID["settings"], "checkpoints": [1, 2]}}
BOTTLENECK = {"method": "lora", "method_options": {"bottleneck": 3}}
DASHED = {"title": "t", "dashed": {"grid": "tunde", "color": "keptt"}}
BY_EPOCH = {"scores": ["fisher"], "checkpoints": [1, 2]}
RANKS = {"title": "t", "value": "rank:fisher", "rows": "block", "columns": "task"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        # Of a grid.
        (recipe(settings={}), ["a grid of tune needs a plan"]),
        (
            recipe(rates={"full": [1e-4]}, axes={**GRID["axes"], "learning_rate": [1e-3]}),
            ["rates: give rates here or as", "rates: unknown plan of the grid 'full'"],
        ),
        (recipe(rates={"ful": [1e-4]}), ["rates: unknown plan of the grid 'ful'"]),
        (recipe(verb=["tune"]), ["grids.tuned.verb: Input should be"]),
        (recipe(verb="tun"), ["grids.tuned.verb: Input should be 'tune', 'scan'"]),
        (
            recipe(axes={**GRID["axes"], 1: [2]}),
            ["axes.1.[key]: Input"],
        ),
        (recipe(rates=5), ["rates: Input should be a valid dictionary, got 5"]),
        (recipe(axes={"model": [None], "task": ["demo"]}), ["axes.model: the value is empty"]),
        (recipe(of="tuned"), ["model: it comes with", "task: it comes", "tune starts from a"]),
        (setting(plan="Full"), ["a plan is written in lower case"]),
        (setting(plan="auto"), ["cannot be used in a study"]),
        (setting(plan=3), ["settings.plan: Input should be a valid string, got 3"]),
        (setting(seed=10**26), ["less than"]),
        (setting(method="loraa"), ["did you mean 'lora'?"]),
        (setting(**BOTTLENECK), ["settings.method_options"]),
        (setting(preset="xie2021"), ["did you mean 'xie2022'?"]),
        (axis(per_class=[[1, 2]]), ["greater than or equal to 2"]),
        (axis(edits=["localised:3"]), ["localized, for a sweep"]),
        (
            axis(seed=list(range(10_001))),
            ["an axis has at most 10,000 values, got 10,001; split it"],
        ),
        (
            recipe(axes={"model": ["demo"], "task": [{"data": "x.csv", "txt": "a"}]}),
            ["axes.task: unknown key 'txt', did you mean 'text'?"],
        ),
        # Of a grid that reads another one.
        (reading("scan", settings={"seed": 1}), ["grids.read.seed: it comes with the tuned"]),
        (
            reading("scan", of="tund", settings={"scores": "cca"}),
            ["grids.read.of: unknown grid of tune 'tund', did you mean 'tuned'?"],
        ),
        (reading("evaluate", of=None, **GRID | {"settings": {}}), ["evaluate needs tuned models"]),
        (
            reading("evaluate", settings=HEADS),
            ["grids.read.settings.tune_heads: heads are tuned again at every state; add the edit"],
        ),
        (
            reading("scan", tuned=KEPT, settings={"scores": "fisher", "checkpoints": [1, 3]}),
            ["settings.checkpoints: tuned does not keep epochs [3]"],
        ),
        # Of tables and figures.
        (
            table(grid="tund"),
            ["tables.0.grid: unknown grid 'tund', did you mean 'tuned'? known: tuned"],
        ),
        (table(rows="modell"), ["tables.0.rows: unknown axis 'modell', did you mean 'model'?"]),
        (table(where={"kepd": 0}), ["tables.0.where: unknown axis 'kepd', did you mean 'kept'?"]),
        (table(value="pearsn:cca"), ["tables.0.value: unknown measure 'pearsn:cca'"]),
        (table(value="pearson:ccca"), ["tables.0.value: unknown measure"]),
        (table(value=["metric", "seconds"]), ["a mean over several measures says nothing"]),
        (table(value="variability_ratio"), ["variability_ratio has a value per state"]),
        (
            table(**RANKS | {"columns": "epoch"}),
            ["rank:fisher has no value per epoch; take it out"],
        ),
        (
            table(value="deviation:fisher", rows="block", columns="checkpoint"),
            ["deviation:fisher has no value per block"],
        ),
        (table(**RANKS | {"columns": "at"}), ["at and block are the same; name one of them"]),
        (
            reading("scan", tuned=KEPT, settings=BY_EPOCH) | {"tables": [RANKS]},
            ["tables.0: rank:fisher has a value per checkpoint here"],
        ),
        (
            recipe() | {"figures": [DASHED]},
            [
                "figures.0.dashed.grid: unknown grid 'tunde', did you mean 'tuned'?",
                "figures.0.dashed.color: unknown axis 'keptt'",
            ],
        ),
    ],
)
def test_a_fault_is_told_alone(content, words):
    told = faults(content)
    assert len(told) == len(words), told
    assert all(part in line for part, line in zip(words, told, strict=True)), told


def test_half_a_character_is_a_fault():
    told = faults(recipe(axes={**GRID["axes"], "plan": ["\ud800", "\ud800"]}, settings={}))
    assert told == ["a text holds half of a surrogate pair, '\\ud800'; remove it"]


@pytest.mark.parametrize(
    "content",
    [
        reading("evaluate", settings=HEADS | {"edits": ["skip", "truncate"]}),
        reading("scan", tuned=KEPT, settings=BY_EPOCH)
        | {"tables": [RANKS | {"columns": "checkpoint"}, RANKS | {"where": {"checkpoint": 2}}]},
        table(value=["metric", "seconds"], columns="measure", rows=["task", "grid"]),
        table(value="variability_ratio", columns="state", rows="task") | {"baseline": "full"},
    ],
)
def test_what_goes_together_is_taken(content):
    assert make_recipe(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title: [", "is not valid YAML, line"),
        ("just words", "is not a recipe"),
        ("title: !!python/object:os.system x", "is not valid YAML"),
        ("- 1\n- 2", "is not a recipe"),
        ("title: t\ngrids: 3", "is not a recipe"),
        ("title: t\ntitle: u\ngrids: {}", 'found duplicate key "title"'),
        ("title: t\ngrids: &a {g: *a}", "is not valid YAML"),
        (f"title: t\ngrids: {'[' * 300}", "is not valid YAML"),
        (f"title: t\ngrids: {'[' * 47}{']' * 47}", "is not a recipe"),
    ],
)
def test_a_broken_file_is_refused_in_a_line(write, text, words):
    expect_refused(words, load_recipe, write("mine.yaml", text))


def test_aliases_do_not_fill_the_memory(write):
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = write("bomb.yaml", "\n".join(["title: t", "l0: &l0 [1]", *levels, "grids: {t: *l11}"]))
    expect_refused("more than 100,000 values", load_recipe, bomb)


@pytest.mark.parametrize("many", ["seed", "learning_rate"])
def test_a_grid_has_an_end(tmp_path, many):
    content = recipe()
    values = list(range(1, 5_002))
    axes = {many: values if many == "seed" else [1e-6 * one for one in values]}
    content["grids"]["tuned"]["axes"] = {**GRID["axes"], **axes, "examples": [10, 20]}
    expect_refused(
        "at most 10,000 points, tuned has 10,002", estimate, make_recipe(content), tmp_path
    )


def test_an_estimate_counts_tokens_once_for_all_seeds(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(
        "layerscout.studies.estimates.mean_tokens", lambda *asked: counted.append(asked) or 20.0
    )
    monkeypatch.setattr("layerscout.studies.estimates.measure_speed", lambda *asked: 1e9)
    axes = {**GRID["axes"], "seed": [0, 1, 2], "examples": [100, 200]}
    found = estimate(make_recipe(recipe(axes=axes)), tmp_path)
    assert len(found.trials) == 6
    # Once for each size, and once for the speed of this machine.
    assert len(counted) == 3


def test_a_recipe_that_is_not_there(tmp_path):
    expect_refused("did you mean 'xie2022-table6'?", load_recipe, "xie2022-tabel6")
    expect_refused("cannot read the recipe", load_recipe, tmp_path / "none.yaml")
    (tmp_path / "mine.yaml").write_text("title: t\ngrids: {a: {}}")
    expect_refused("has no small variant", load_recipe, tmp_path / "mine.yaml", small=True)


def test_rates_are_numbers_however_they_are_written(write):
    text = "title: t\ngrids: {g: {axes: {model: [demo], task: [demo]}, settings: {plan: full, "
    path = write("mine.yaml", text + "learning_rate: 1e-4}}}")
    assert load_recipe(path).grids["g"].settings["learning_rate"] == 1e-4
    assert read_value("5e-5") == 5e-5 and read_value("[0, 1]") == [0, 1]
    assert read_value("top:2") == "top:2"
    expect_refused("must be valid YAML", read_value, "[0, 1")


def test_changes_reach_every_grid_that_takes_them():
    content = recipe()
    content["grids"]["read"] = {"verb": "scan", "of": "tuned", "settings": {"scores": "cca"}}
    found = apply_change(content, "model", ["a", "b"])
    assert found["grids"]["tuned"]["axes"]["model"] == ["a", "b"]
    assert "model" not in found["grids"]["read"]["settings"]
    assert apply_change(content, "model", "a")["grids"]["tuned"]["axes"]["model"] == ["a"]
    found = apply_change(content, "axes.seed", [0, 1])
    assert found["grids"]["tuned"]["axes"]["seed"] == [0, 1]
    assert found["grids"]["read"] == content["grids"]["read"]  # it takes those of the models
    found = apply_change(content, "epochs", 3)
    assert found["grids"]["tuned"]["settings"] == {"plan": "top:1", "epochs": 3}
    assert found["grids"]["read"] == content["grids"]["read"]
    found = apply_change(content, "axes.plan", ["full", "top:1"])  # and it is no setting any more
    assert "plan" not in found["grids"]["tuned"]["settings"]
    assert apply_change(content, "grids.tuned.pilot", True)["grids"]["tuned"]["pilot"] is True
    assert apply_change(content, "baseline", "full")["baseline"] == "full"
    assert content == recipe() | {"grids": content["grids"]}  # what is given stays
    expect_refused("unknown place in the recipe 'epocs'", apply_change, content, "epocs", 3)
    expect_refused("unknown grid 'tund'", apply_change, content, "grids.tund.pilot", True)


@pytest.mark.parametrize("entry, wrong", [("axes", "model"), ("axes", ["model"]), ("settings", 3)])
@pytest.mark.parametrize("value", [["a"], None])
def test_changes_leave_what_is_no_mapping_to_the_check(write, entry, wrong, value):
    # "model" is also found in text, which fuzzing wrote in the place of axes.
    content = recipe()
    content["grids"]["tuned"][entry] = wrong
    path = write("mine.yaml", json.dumps(content))
    expect_refused(f"grids.tuned.{entry}", load_recipe, path, changes={"model": value})


def test_sweeps_fit_the_model():
    assert expand_sweep("incremental", 3) == {
        "reinit:1-3": {"kept": 0},
        "reinit:2-3": {"kept": 1},
        "reinit:3-3": {"kept": 2},
        "": {"kept": 3},
    }
    assert list(expand_sweep("incremental:0,12", 12)) == ["reinit:1-12", ""]
    found = expand_sweep("localized:3", 12)
    assert len(found) == 20  # ten places of three blocks, re-initialised or kept alone
    assert found["preserve:10-12"] == {"change": "preserved", "first": 10, "last": 12}
    orders = expand_sweep("permutations:4", 6).values()
    assert [order["permutation"] for order in orders] == [0, 1, 2, 3]
    # Seeds 2 and 9 draw the same order of six blocks, and the order as it was is none of them.
    orders = [edit.partition(":")[2] for edit in expand_sweep("permutations:10", 6)]
    assert orders == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "10"]
    assert [len(expand_sweep("permutations:10", L)) for L in (1, 2, 3)] == [1, 1, 5]
    assert len(expand_sweep("single", 5)) == 6
    assert expand_sweep("reinit:1-2", 3) == {"reinit:1-2": {}} and expand_sweep(None, 3) == {"": {}}
    expect_refused("keeps more blocks than there are", expand_sweep, "incremental:7", 6)
    expect_refused("needs more than 6 blocks", expand_sweep, "localized:6", 6)
    expect_refused("too many orders", expand_sweep, "permutations:20000000", 4)


def test_what_a_grid_takes_is_what_the_verb_takes():
    own = {*DRAWING, "model", "task", "precision"}
    extra = {
        "tune": {"method_options", "scan_examples", "predictions"},
        "scan": {"probe", "probe_seeds", "fisher_mode", "as_released", "head_seeds"},
        "compare": {"original"},
        "evaluate": {"original"},
    }
    for verb, model in arguments.VERBS.items():
        known = inspect.signature(getattr(ls, verb)).parameters
        assert model.model_fields.keys() - own - extra[verb] <= known.keys()


def test_the_documentation_names_all_that_there_is():
    docs = Path(__file__).parents[2] / "docs"
    text = "".join(
        (docs / f"{page}.md").read_text(encoding="utf-8") for page in ("study", "papers")
    )
    shared = set(arguments.Reading.model_fields)
    names = {
        *list_recipes(),
        *recipes.Recipe.model_fields,
        *recipes.Grid.model_fields,
        *recipes.TableSpec.model_fields,
        *recipes.FigureSpec.model_fields,
        *recipes.DashedSpec.model_fields,
        *arguments.TaskFile.model_fields,
        *("incremental", "localized", "single", "permutations"),
        *recipes.PLAIN,
        *(f"{kind}:KEY" for kind in recipes.SCORED),
        *(shared - {"max_length", "precision", "seed"}),
    }
    assert [name for name in sorted(names - {"KEY"}) if f"`{name}" not in text] == []
