"""Data sets on the hub, downloaded by `datasets` or from its cache."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from layerscout.data.files import content_of, find_names
from layerscout.data.tables import Source, Table, join_names
from layerscout.runtime import InputError

# Names from before the hub's data sets had owners.
OLD_HUB_NAMES = {
    "glue": "nyu-mll/glue",
    "super_glue": "aps/super_glue",
    "yelp_polarity": "fancyzhx/yelp_polarity",
    "hellaswag": "Rowan/hellaswag",
    "cosmos_qa": "allenai/cosmos_qa",
    "go_emotions": "google-research-datasets/go_emotions",
    "wnut_17": "leondz/wnut_17",
    "conll2003": "eriktks/conll2003",
    "universal_dependencies": "universal-dependencies/universal_dependencies",
}
VALIDATION_NAMES = ("validation", "validation_matched", "dev", "dev_matched", "valid", "val")


def parse_hub_name(data: str) -> str | None:
    """Return the hub's `owner/name[/config]`, or an old bare name; None for what must be a path."""
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*){0,2}", data, re.ASCII):
        return None
    first, *rest = data.split("/")
    parts = [*OLD_HUB_NAMES.get(first, first).split("/"), *rest]
    # Names end in versions (name-v1.5) and configurations in words (wsc.fixed), files in suffixes.
    if len(parts) > 3 or (len(parts) < 3 and re.search(r"\.[A-Za-z]\w*$", data)):
        return None
    # The library takes names such as "csv" for its readers and would look in this folder.
    if "." in first or find_spec(f"datasets.packaged_modules.{first}"):
        return None
    return "/".join(parts)


def open_hub(hub: str) -> dict[str, Source]:
    """Return the splits of a data set on the hub, downloaded or from the library's cache."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

    try:
        with _cache_if_unreachable(hub):
            found = _download(hub.split("/"))
    except (OSError, ValueError, RuntimeError, HTTPError, DatasetsError) as error:
        raise _hub_error(hub, error) from error
    name = "/".join(hub.split("/")[:2])
    if "train" not in found:
        raise InputError(f"a data set needs a split `train`: {name} has {join_names(found)}")
    splits = {"train": _hub_split(f"{name} (train)", found["train"])}
    validation = next((split for split in VALIDATION_NAMES if split in found), None)
    if validation is not None:
        splits["validation"] = _hub_split(f"{name} ({validation})", found[validation])
    if "test" in found:
        splits["test"] = _hub_split(f"{name} (test)", found["test"])
    return splits


@contextmanager
def _cache_if_unreachable(hub: str) -> Iterator[None]:
    """Send `datasets` straight to its cache where the hub does not answer: it retries for long."""
    from datasets import config
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    before = config.HF_HUB_OFFLINE
    try:
        HfApi().dataset_info("/".join(hub.split("/")[:2]), timeout=10)
    except HfHubHTTPError:
        pass  # it answered; what it says is told below
    except (HTTPError, OSError):
        config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


def _download(parts: list[str]) -> Any:
    """Return what `datasets` has by owner, name and configuration: its splits by name."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        return load_dataset("/".join(parts[:2]), *parts[2:])
    except DatasetNotFoundError as not_found:
        if len(parts) != 2:
            raise
        try:  # old names have no owner, so what looks like owner/name may be name/config
            return load_dataset(*parts)
        except DatasetNotFoundError:
            raise not_found from None


def _hub_error(name: str, error: Exception) -> InputError:
    """Tell in one line why a data set on the hub could not be had, and what to do."""
    import datasets

    reason = " ".join(str(error).split())[:300].rstrip(". ")
    if isinstance(error, datasets.exceptions.DatasetNotFoundError):
        remedy = "check the spelling; for a private or gated one run `hf auth login`"
    elif isinstance(error, ConnectionError):
        remedy = "check the network, or use a data set that was loaded before, or local files"
    elif "scripts are no longer supported" in reason:
        remedy = "code from the hub is never run; use a copy in Parquet, or local files"
    elif "config" in reason.lower():
        remedy = "write the configuration as name/config"
    else:
        remedy = "try again, or use local files"
    return InputError(f"cannot load {name!r} (no such file here) from the hub: {reason}; {remedy}")


def _hub_split(name: str, split: Any) -> Source:
    """Make the source of one split as `datasets` has it."""

    def read(wanted: Sequence[str]) -> Table:
        table = split.select_columns(list(wanted)).with_format("arrow")[:]
        return Table(name, {column: table[column].to_pylist() for column in wanted})

    columns = {column.name: content_of(column.type) for column in split.features.arrow_schema}
    return Source(name, columns, read, find_names(split.features.to_dict()))
