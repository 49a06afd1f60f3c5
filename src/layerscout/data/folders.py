"""Which files of a folder are read, and as which of its splits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from layerscout.data.files import JSON_LINES, PARQUET
from layerscout.data.lines import find_suffix
from layerscout.data.tables import join_names
from layerscout.errors import InputError, first_line
from layerscout.yaml import read_yaml

# What the splits are called, in the order of preference.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "validation_matched", "dev", "dev_matched", "valid", "val"),
    "test": ("test", "testing"),
}
# Names that stand for a split where none of its own does: `datasets` reads "eval" as a test split
# (huggingface/datasets#3221), and the `Trainer` of transformers validates on it.
SPARE_NAMES = {
    "validation": ("validation_mismatched", "dev_mismatched", "eval", "evaluation"),
    "test": ("eval", "evaluation"),
}
_NAMES = {
    name for table in (SPLIT_NAMES, SPARE_NAMES) for names in table.values() for name in names
}
_ONE_OF = "|".join(sorted(_NAMES, key=len, reverse=True))
# The name of a file of a split, without its ending: en_ewt-ud-train, train_1, or
# train-00000-of-00002-8d39e1a5b7a2b7de, as older versions of `datasets` wrote it.
_FILE = re.compile(
    rf"(?:(?P<prefix>.+?)[-_. ])??(?P<name>{_ONE_OF})"
    r"(?:(?:[-_. ]?(?:part|shard))?[-_. ]?(?P<number>\d+)"
    r"(?:[-_. ]of[-_. ](?P<count>\d+)(?:[-_.][0-9a-f]{8,})?)?)?",
    re.IGNORECASE,
)
# The names of files that no training split is read from.
_HELD_OUT = re.compile(
    rf"(?:.*[-_. ])?(?!train)(?:{_ONE_OF})(?![a-z]).*", re.IGNORECASE | re.DOTALL
)
# Of data sets on the hub, and of what `datasets` saves: about the data, whatever their ending.
_NO_DATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
# What a README says of its data sets, by their names: see `read_configs`.
Configs = Mapping[str, Mapping[str, Any]]
# What an entry of `configs:` in a README may say that is followed, or that changes no row.
_FOLLOWED = {"config_name", "data_files", "data_dir", "default", "sep", "delimiter"}
_FOLLOWED |= {"description", "drop_labels", "drop_metadata", "features", "version"}


@dataclass
class Layout:
    """The files of a folder by split.

    Attributes:
        splits: the files of each split, as they are called in the folder, in their order.
        notes: what should be known, a line each.
        others: files of other data sets in the folder.
        sep: what stands between the fields of CSV and TSV files, where the folder says so.
    """

    splits: dict[str, list[str]]
    notes: list[str] = field(default_factory=list)
    others: Collection[str] = ()
    sep: str | None = None


def is_part(name: str) -> bool:
    """Return whether a file can be a part of an only split: .parquet, .jsonl or one of Spark."""
    spark = re.match(r"part-\d{5}", name.rpartition("/")[2])
    return spark is not None or name.lower().endswith((*PARQUET, *JSON_LINES))


def is_held_out(name: str) -> bool:
    """Return whether a file is a part of a validation or test split, by its name."""
    return _HELD_OUT.fullmatch(name) is not None


def strip_suffix(name: str) -> str:
    """Return the name of a file without its ending, or endings if it is compressed."""
    path = Path(name)
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def choose_splits(names: Iterable[str]) -> dict[str, list[str]]:
    """Return which of some names stand for each split, the preferred ones first."""
    known = {name.lower(): name for name in names}
    chosen = {
        split: [known[name] for name in usual if name in known]
        for split, usual in SPLIT_NAMES.items()
    }
    for split, spare in SPARE_NAMES.items():
        free = [known[name] for name in spare if name in known]
        free = [name for name in free if name not in chosen["validation"]]
        chosen[split] = chosen[split] or free[:1]
    return chosen


def list_files(folder: Path, is_known: Callable[[Path], bool]) -> list[str]:
    """List the files of data in a folder, in its `data`, and in the folders of splits in both.

    Args:
        folder: where they are.
        is_known: tells whether a file can be read, by its path.
    """
    places = [folder, *(one for one in [folder / "data"] if one.is_dir())]
    for place in [*places]:
        places += [
            entry
            for entry in sorted(place.iterdir())
            if strip_suffix(entry.name).lower() in _NAMES and entry.is_dir()
        ]
    return [
        entry.relative_to(folder).as_posix()
        for place in places
        for entry in sorted(place.iterdir())
        if not entry.name.startswith(".")
        and entry.name not in _NO_DATA
        and is_known(entry)
        and not entry.is_dir()  # a link that leads nowhere is refused when it is opened
    ]


def lay_out(folder: str, names: Sequence[str]) -> Layout:
    """Tell by the names of files which split each is of.

    They are looked for in the folder, then in its `data`, then in folders named after splits in
    the first and in the second: a training split that is in one of these places brings the others
    along. Without one, the files are its parts if all can be, unless held-out ones are there.

    Args:
        folder: what messages call it.
        names: of its files, below it.

    Raises:
        InputError: if several files could be the same split.
    """
    places: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for name in names:
        *above, _ = name.split("/")
        inside = above[:1] == ["data"]
        places[len(above) - inside, inside].append(name)
    for place in sorted(places):
        files = [file for file in map(_parse, places[place]) if file]
        prefixes = {file.prefix for file in files if file.split in SPLIT_NAMES["train"]}
        if "" in prefixes or len(prefixes) == 1:
            prefix = "" if "" in prefixes else prefixes.pop()
            return _choose(folder, [file for file in files if file.prefix == prefix])
    parts = places.get((0, False)) or places.get((0, True)) or []
    of_one_split = not any(is_held_out(name.rpartition("/")[2]) for name in parts)
    if parts and of_one_split and all(map(is_part, parts)):
        return Layout({"train": parts})
    return Layout({})


class _File(NamedTuple):
    """A file of a split, by its name.

    Attributes:
        prefix: what stands before the name of the split.
        split: this name.
        kind: 0 if the file has it alone, 1 if it is numbered with the count of all, else 2; its
            ending; and this count.
        order: what the files of a split are sorted by.
        name: of the file, below the folder.
    """

    prefix: str
    split: str
    kind: tuple[int, str, int]
    order: tuple[int, str]
    name: str


def _parse(name: str) -> _File | None:
    """Tell by the name of a file which split it is of; None if of no one."""
    *above, file = name.split("/")
    suffix = find_suffix(Path(file))
    if above and above != ["data"]:  # all files of a folder that has the name of a split
        return _File("", strip_suffix(above[-1]).lower(), (0, suffix, 0), (0, file), name)
    if not (match := _FILE.fullmatch(strip_suffix(file))):
        return None
    number, count = match["number"], int(match["count"] or 0)
    rank = 0 if number is None else 1 if count else 2
    prefix, split = (match["prefix"] or "").lower(), match["name"].lower()
    return _File(prefix, split, (rank, suffix, count), (int(number or 0), ""), name)


def _choose(folder: str, files: Sequence[_File]) -> Layout:
    """Choose the files of each split: the one that has its name alone, else its parts."""
    layout = Layout({})
    for split, usual in choose_splits(file.split for file in files).items():
        some = [file for file in files if file.split in usual]
        first = min((file.kind for file in some), default=(0,))[0]
        some = sorted((file for file in some if file.kind[0] == first), key=lambda one: one.order)
        names = [file.name for file in some]
        kinds = {(file.split, file.kind) for file in some}
        if len(kinds) > 1 or len({file.order for file in some}) < len(some):
            raise InputError(
                f"a folder of data needs one {split} file, or its parts: {folder} has "
                f"{join_names(sorted(names))}; remove all but one"
            )
        if some:
            layout.splits[split] = names
            if usual[0] in SPARE_NAMES.get(split, ()):
                layout.notes.append(f"{join_names(names)} of {folder} is read as {split} split")
    return layout


def count_missing(files: Sequence[str]) -> int:
    """Count the parts of a split that are not there, by the names of those that are."""
    matches = [_FILE.fullmatch(strip_suffix(file.rpartition("/")[2])) for file in files]
    counts = {int(one["count"] or 0) if one else 0 for one in matches}
    return max(counts.pop() - len(files), 0) if len(counts) == 1 else 0


# --- The README of a data set from the hub -------------------------------------------------------


def read_configs(folder: Path, notes: list[str]) -> Configs:
    """Return what the README of a folder says of its data sets, by name; none if it says nothing.

    "data_files" are patterns for each split then, and "data_dir" is none but a string.

    Args:
        folder: such as a copy of a repository from the hub.
        notes: a line is added where it cannot be understood.
    """
    readme = folder / "README.md"
    if not readme.is_file():
        return {}
    text = readme.read_text(encoding="utf-8-sig", errors="replace")
    front = re.match(r"---[ \t]*\n(.*?)^---[ \t]*$", text, re.DOTALL | re.MULTILINE)
    # The rest may be long, and is not always valid YAML.
    part = front and re.search(r"^configs:.*?(?=^[^\s#-]|\Z)", front[1], re.DOTALL | re.MULTILINE)
    if not part:
        return {}
    try:
        entries = read_yaml(part[0])["configs"] or []
        return {str(entry["config_name"]): _read_config(entry) for entry in entries}
    except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
        notes.append(f"`configs` in {readme} are not followed: {first_line(error):.200}")
        return {}


def _read_config(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Read an entry of `configs:`, in any of the ways that `datasets` reads it."""
    from datasets.data_files import sanitize_patterns

    folder = str(entry.get("data_dir") or ".")
    patterns = {
        split: [str(PurePosixPath(folder, one)) for one in some]
        for split, some in sanitize_patterns(entry.get("data_files") or {}).items()
    }
    if "\0" in "".join([folder, *chain(*patterns.values())]):
        raise ValueError("names of files hold no NUL characters")
    return {**entry, "data_dir": folder, "data_files": patterns}


def choose_config(folder: Path, configs: Configs) -> str:
    """Choose the data set of a folder that is read if no name is given, as `datasets` does.

    Raises:
        InputError: if it takes a name to tell which.
    """
    default = [
        name
        for name, config in configs.items()
        if len(configs) == 1 or name == "default" or config.get("default") is True
    ]
    if len(default) != 1:
        raise InputError(
            f"{folder} holds several data sets, by its README: {join_names(configs)}; write one as "
            f"{folder / next(iter(configs))!s:.200}"
        )
    return default[0]


def follow_config(
    folder: Path, configs: Configs, name: str, is_known: Callable[[Path], bool]
) -> Layout | None:
    """Find the files of a data set as the README of their folder says; None if none is there.

    Args:
        folder: with the README.
        configs: of the README.
        name: of the data set.
        is_known: tells whether a file can be read, by its path.

    Raises:
        InputError: if its training split is not there.
    """
    config, above = configs[name], configs[name]["data_dir"]
    found = {split: _match(folder, some, is_known) for split, some in config["data_files"].items()}
    absent = [
        one for split, some in found.items() if not some for one in config["data_files"][split]
    ]
    if not found:
        inner = folder / above
        files = lay_out(str(inner), list_files(inner, is_known) if inner.is_dir() else []).splits
        found = {s: [str(PurePosixPath(above, one)) for one in some] for s, some in files.items()}
    splits = {split: found[some[0]] for split, some in choose_splits(found).items() if some}
    splits = {split: files for split, files in splits.items() if files}
    if not any(found.values()):
        return None
    if "train" not in splits:
        there = join_names(split for split in found if found[split])
        raise InputError(
            f"a data set needs a split `train`: {folder} has, by its README, {there}"
            + f", but not {join_names(absent)}" * bool(absent)
            + "; name a file to use it alone"
        )
    notes = []
    if absent:
        notes.append(f"the README of {folder} names absent files: {join_names(absent)}")
    if odd := sorted({*map(str, config)} - _FOLLOWED):
        notes.append(f"the README of {folder} sets {join_names(odd)}, which is not followed")
    others = [
        some for other in configs if other != name for some in configs[other]["data_files"].values()
    ]
    sep = config.get("sep") or config.get("delimiter")
    return Layout(splits, notes, _match(folder, [*chain(*others)], is_known), sep and str(sep))


def _match(folder: Path, patterns: Sequence[str], is_known: Callable[[Path], bool]) -> list[str]:
    """Return the files of a folder that some patterns name, those of each sorted."""
    files = [
        Path(name)
        for one in patterns
        if one[:1] != "/" and ".." not in one.split("/")
        # Path.glob finds no files for `**`.
        for name in sorted(glob(one, root_dir=folder, recursive=True))  # noqa: PTH207
    ]
    return [
        file.as_posix()
        for file in dict.fromkeys(files)
        if file.name not in _NO_DATA and is_known(folder / file) and (folder / file).is_file()
    ]
