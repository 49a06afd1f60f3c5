"""Which files of a folder are read as which split, and what is said of the others."""

import re
from pathlib import Path

import pandas as pd
import pytest

from inputs import expect_refused
from layerscout.data import Task

WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "gz": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "ssv": lambda frame, path: frame.to_csv(path.with_suffix(".csv"), index=False, sep=";"),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "json": lambda frame, path: frame.to_json(path, orient="records"),
    "parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


def make(folder: Path, names: str, readme: str = "") -> Path:
    """Write files whose texts are their own names, without what follows the first dot."""
    for name in names.split():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stem = name.partition(".")[0]
        frame = pd.DataFrame({"text": [f"{stem} {n}" for n in range(4)], "label": [*"abab"]})
        WRITERS[path.suffix[1:]](frame, path)
    if readme:
        front = f"license: mit\ndate: 2020-01-01\nconfigs:\n{readme}tags:\n- x\n"
        (folder / "README.md").write_text(f"---\n{front}---\n\n# Reviews\n")
    return folder


def splits_of(task: Task) -> str:
    """Name the files of each split, in the order of the rows."""
    parts = [task.train, task.validation, task.test]
    names = [[text[:-2] for text in part.texts[::4]] if part else [] for part in parts]
    return " | ".join(" ".join(some) for some in names).rstrip(" |")


SHARDS = "train-00000-of-00002 train-00001-of-00002"
HELD = "dev-00000-of-00001"


def with_suffix(names: str, suffix: str) -> str:
    return " ".join(f"{name}.{suffix}" for name in names.split())


@pytest.mark.parametrize(
    ("names", "splits", "warning"),
    [
        # Other names of splits.
        ("train.csv eval.csv", "train | eval", "eval.csv of … is read as validation split"),
        ("train.csv evaluation.csv", "train | evaluation", "is read as validation split"),
        ("train.csv dev.csv eval.csv", "train | dev | eval", "is read as test split"),
        ("train.csv eval.csv test.csv", "train | eval | test", "is read as validation split"),
        ("Training.csv testing.csv val.csv", "Training | val | testing", ""),
        ("train.csv dev_mismatched.csv", "train | dev_mismatched", "read as validation split"),
        ("my_train.csv my_valid.tsv my_test.csv", "my_train | my_valid | my_test", ""),
        ("a-ud-train.jsonl a-ud-dev.jsonl", "a-ud-train | a-ud-dev", ""),
        # Files that are not read.
        ("train.csv dev.csv test.csv eval.csv", "train | dev | test", "not read: eval.csv"),
        ("train.csv validation_matched.csv validation_mismatched.csv",
         "train | validation_matched", "not read: validation_mismatched.csv"),
        ("train.csv train_2.csv other.json", "train", "not read: other.json, train_2.csv"),
        ("train.csv b_test.csv data/c.csv", "train", "not read: b_test.csv, data/c.csv"),
        ("train.csv train/a.csv state.json", "train", "not read: train/a.csv"),
        # Parts.
        *((with_suffix(f"{SHARDS} {HELD}", suffix), f"{SHARDS} | {HELD}", "")
          for suffix in ("csv", "csv.gz", "tsv", "jsonl", "json", "parquet")),
        (with_suffix(f"data/{SHARDS.replace(' ', ' data/')} data/test-00000-of-00001", "parquet"),
         f"data/{SHARDS.replace(' ', ' data/')} |  | data/test-00000-of-00001", ""),
        ("train-00000-of-00001-8d39e1a5b7a2b7de.parquet dataset_infos.json",
         "train-00000-of-00001-8d39e1a5b7a2b7de", ""),
        ("train-00002-of-00003.jsonl train-00000-of-00003.jsonl",
         "train-00000-of-00003 train-00002-of-00003", "missing: 1 of the 3 files of the train"),
        ("train_2.csv train_10.csv test_0.csv", "train_2 train_10 |  | test_0", ""),
        ("train/b.csv train/a.csv test/a.csv", "train/a train/b |  | test/a", ""),
        ("data/train/0.parquet data/validation/0.parquet", "data/train/0 | data/validation/0", ""),
        ("train.parquet/part-0.parquet train.parquet/part-1.parquet", "train train", ""),
        ("0.parquet 1.parquet", "0 1", ""),
        ("data/0.parquet data/1.parquet", "data/0 data/1", ""),
    ],
)  # fmt: skip
def test_a_folder_is_read_by_the_names_of_its_files(tmp_path, names, splits, warning):
    task = Task.load(make(tmp_path / "all", names))
    assert splits_of(task) == splits
    said = [line for line in task.warnings if "rows" not in line]
    assert len(said) == bool(warning)
    if warning:
        assert re.search(warning.replace(" … ", ".*"), said[0])


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("train.csv dev.csv val.csv", "needs one validation file … dev.csv, val.csv … all but one"),
        ("train-00000-of-00001.csv train-00000-of-00002.csv", "needs one train file"),
        ("train-0-of-1-8d39e1a5b7.csv train-0-of-1-9d39e1a5b7.csv", "needs one train file"),
        ("train-0.csv train-1.tsv", "needs one train file"),
        ("en_train.csv de_train.csv", "needs one train file"),
        ("X_train.csv y_train.csv", "needs one train file"),
        ("part-0.parquet a-test.parquet", "needs one train file"),
        ("validation/0.parquet", "needs one train file … has validation, validation/0.parquet"),
        ("part-0.csv part-1.csv", "needs one train file"),
        ("state.json", "needs one train file … has state.json; what `save_to_disk`"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path, names, reason):
    expect_refused(reason, Task.load, make(tmp_path / "all", names))


def test_files_that_are_named_are_not_told_as_unread(tmp_path):
    folder = make(tmp_path / "all", "train.csv a.csv b.csv")
    task = Task.load(folder, validation=folder / "a.csv", test=f"{folder}/../all/b.csv")
    assert not [line for line in task.warnings if "not read" in line]


@pytest.mark.parametrize("place", ["default", "snapshots/0af"])
def test_a_folder_around_one_is_refused_with_a_guess(tmp_path, place):
    make(tmp_path / "all" / place, "train.csv test.csv")
    (tmp_path / "all" / "blobs").mkdir()
    guess = f"did you mean {tmp_path / 'all' / place}?"
    expect_refused(guess, Task.load, tmp_path / "all")


def test_a_split_that_is_a_link_to_nothing_is_refused(tmp_path):
    """As in a copy of the hub's cache, of which not everything was fetched."""
    folder = make(tmp_path / "all", "train.csv")
    (folder / "dev.csv").symlink_to("../blobs/0af")
    expect_refused(f"cannot read {folder / 'dev.csv'}: No such file", Task.load, folder)


def test_a_folder_elsewhere_is_read_in_the_same_way(tmp_path):
    names = with_suffix(f"{SHARDS} eval-00000-of-00001 more", "jsonl")
    task = Task.load(f"file://{make(tmp_path / 'all', names)}")
    assert splits_of(task) == f"{SHARDS} | eval-00000-of-00001"
    assert "is read as validation split" in task.warnings[0]
    assert "not read: more.jsonl" in task.warnings[1]
    many = Task.load(f"{make(tmp_path / 'cells', with_suffix(SHARDS, 'csv'))}/train-*.csv")
    assert splits_of(many) == SHARDS


def test_labels_of_all_parts_are_told_apart_together(tmp_path):
    # Numbers in one file, names in another: all of them are names then.
    for number, labels in enumerate((["1", "2"], ["1", "x"], ["2", "x"])):
        rows = pd.DataFrame({"text": [f"{number} {label}" for label in labels], "label": labels})
        rows.to_csv(tmp_path / f"train-{number}-of-3.csv", index=False)
    assert Task.load(tmp_path).labels == ("1", "2", "x")
    (tmp_path / "train-2-of-3.csv").write_text("text,label\nc,1\nd,\ne,x\n")
    expect_refused("train-2-of-3.csv has … missing … in line 3", Task.load, tmp_path)


# --- A copy of a repository of the hub -----------------------------------------------------------

ONE = """\
- config_name: reviews
  data_files:
  - split: train
    path: TRAIN
  - split: test
    path: TEST
"""
TWO = """\
- config_name: en
  data_files:
    train: data/en-*
- config_name: fr
  data_dir: french
  DEFAULT
"""
ENGLISH_FRENCH = "data/en-1.csv data/en-2.csv data/none.csv french/train.csv french/test.csv"


@pytest.mark.parametrize(
    ("names", "readme", "below", "splits", "warning"),
    [
        ("a/x.csv a/y.csv b.csv", ONE, {"TRAIN": "a/*", "TEST": "b.csv"}, "a/x a/y |  | b", ""),
        ("a/x.csv a/c/y.csv b.csv", ONE, {"TRAIN": "a/**", "TEST": "b*"}, "a/c/y a/x |  | b", ""),
        ("a.csv b.csv c.csv", ONE, {"TRAIN": "[b.csv, a.csv]", "TEST": "c.csv"}, "b a |  | c", ""),
        ("a/x.csv", ONE, {"TRAIN": '"**/x.csv"', "TEST": "none"}, "a/x", "absent files: none"),
        ("train.csv b.csv", ONE, {"TRAIN": "none", "TEST": "no"}, "train", "not read: b.csv"),
        ("a.csv b.csv", "- config_name: x\n  data_files: a.csv\n", {}, "a", "not read: b.csv"),
        ("a.csv b.csv", "- config_name: x\n  data_files: [b.csv, a.csv]\n", {}, "b a", ""),
        ("a.ssv", "- config_name: x\n  data_files: a.csv\n  sep: ';'\n", {}, "a", ""),
        ("a.csv", "- config_name: x\n  data_files: a.csv\n  names: [a]\n", {}, "a", "sets names"),
        ("train.csv", "- {config_name: [}\n", {}, "train", "are not followed: not valid YAML"),
        ("train.csv", "- config_name: x\n  data_files: 3\n", {}, "train", "are not followed"),
        ("train.csv", "- x\n", {}, "train", "are not followed"),
        ("train.csv", "- config_name: x\n  data_files:\n  - split: x\n", {}, "train",
         "are not followed: Invalid format for data_files entry"),
        (ENGLISH_FRENCH, TWO, {"DEFAULT": "default: true"}, "french/train |  | french/test",
         "not read: data/none.csv"),
        (ENGLISH_FRENCH, TWO, {"DEFAULT": "", "": "en"}, "data/en-1 data/en-2",
         "not read: data/none.csv"),
    ],
)  # fmt: skip
def test_the_readme_of_a_folder_says_what_is_read(tmp_path, names, readme, below, splits, warning):
    name = below.pop("", "") if "" in (below := dict(below)) else ""
    for mark, value in below.items():
        readme = readme.replace(mark, value)
    task = Task.load(make(tmp_path / "all", names, readme) / name)
    assert splits_of(task) == splits
    assert len(task.warnings) == bool(warning) and warning in "".join(task.warnings)
    assert all("\n" not in line for line in task.warnings)


def test_several_data_sets_need_a_name(tmp_path):
    folder = make(tmp_path / "all", ENGLISH_FRENCH, TWO.replace("DEFAULT", ""))
    words = f"holds several data sets, by its README: en, fr; write one as {folder}/en"
    expect_refused(words, Task.load, folder)
    expect_refused(
        f"no such file: {folder}/enn; did you mean {folder}/en?", Task.load, folder / "enn"
    )
    task = Task.load(f"{folder}/en")
    assert task.name == "en" and task.origin["data"] == f"{folder}/en"


def test_a_training_split_that_is_not_there_is_refused(tmp_path):
    readme = ONE.replace("TRAIN", "https://example.org/a.csv").replace("TEST", "b.csv")
    folder = make(tmp_path / "all", "a.csv b.csv", readme)
    expect_refused("needs a split `train` … by its README, test, but not https", Task.load, folder)
    (folder / "README.md").write_text("")
    (folder / "train.csv").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    expect_refused("train.csv is not the data … git lfs pull", Task.load, folder)
