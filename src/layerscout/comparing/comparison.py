"""Comparing what the states of models hold: CKA of every state with every other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import combinations_with_replacement
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from layerscout.data import Split, Task, make_targets, sample
from layerscout.errors import InputError, check_integer
from layerscout.models import Encoder, load_config, warn_of_cut_inputs
from layerscout.plans import (
    CompareRequest,
    Pooling,
    add_options,
    options_of,
    resolve_request,
)
from layerscout.progress import Show, log_warnings, show_progress
from layerscout.reporting import Displayed, write_result
from layerscout.scanning import Extractor
from layerscout.scores import SimilarityMap, cka_map, find_clusters, small_sample_warning
from layerscout.states import DEFAULT_LIMIT, States

if TYPE_CHECKING:
    from layerscout.plans import CompareOptions


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """How similar the states of models are; the content of `compare.json`.

    Attributes:
        models: name, source, family and sizes of each, and how it was run.
        task: name and kind.
        settings: all that the maps depend on.
        examples: how many were read; of multiple choice each choice counts.
        maps: one for each pair of models, a model with itself included: the numbers of the two
            (`of`), the states in its rows and columns, and CKA by both estimators, in rows.
        clusters: by model, then by estimator: its states in two clusters, see
            `layerscout.scores.cka.Clusters`; None where it has too few states.
        warnings: what the reader of the numbers should know.
        seconds: time spent tokenising, in the forward passes and on CKA.
    """

    models: Sequence[Mapping[str, Any]]
    task: Mapping[str, Any]
    settings: Mapping[str, Any]
    examples: int
    maps: Sequence[Mapping[str, Any]]
    clusters: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        names = " and ".join(model["name"] for model in self.models)
        return f"<Comparison: {names} on {self.examples} rows of {self.task['name']}>"

    def as_dict(self) -> dict[str, Any]:
        """Return what `compare.json` holds."""
        return {
            "layerscout": version("layerscout"),
            "verb": "compare",
            "pooling": self.settings["pooling"],
            **asdict(self),
        }

    def save(self, folder: str | Path) -> None:
        """Write `compare.json` and `compare.html` into `folder`.

        Raises:
            InputError: if they cannot be written.
        """
        write_result(self.as_dict(), folder)


@add_options(CompareRequest)
def compare(
    models: Encoder | str | Path | Sequence[Encoder | str | Path],
    task: Task | str | Path,
    *,
    request: CompareRequest | None = None,
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool | Show = True,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Compare every state of every model with every other by linear CKA.

    Each model is compared with itself and with those after it; a tuned one and then the untuned one
    give FT-FT, FT-ORIG and ORIG-ORIG. Each reads the same examples with its own tokenizer, and they
    may differ in depth and width. Phang et al. 2021, §3, App. A.

    Args:
        models: one or several, as `Encoder` or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes. Its validation examples are read, or all of its
            examples if it has no validation split: nothing is learnt from them.
        request: the options as one value, in place of `options`.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: all other options, such as `examples`: the attributes of
            `layerscout.plans.CompareRequest`.

    Raises:
        InputError: if a model or the data cannot be used as requested.
    """
    request = resolve_request(CompareRequest, request, options)
    wanted = [models] if isinstance(models, Encoder | str | Path) else list(models)
    if not wanted:
        raise InputError("no model to compare; give at least one")
    if not all(isinstance(model, Encoder | str | Path) for model in wanted):
        raise InputError("a model is an Encoder, a folder or a hub id; load it with Encoder.load")
    task = task if isinstance(task, Task) else Task.load(task)
    split = _draw(task, request.examples, request.seed)
    make_targets(split, task.kind)
    words, rows = task.kind == "token_classification", len(split.labels)
    if rows < 4:
        raise InputError(f"CKA compares states over at least 4 examples, got {rows}; give more")
    seconds: dict[str, float] = {}
    pooling = request.pooling or _choose_pooling(wanted, words=words)
    request = replace(request, pooling=pooling)
    with show_progress(progress) as show:
        read = [
            _read(model, split, pooling, request.max_length, cache_limit, seconds, show)
            for model in wanted
        ]
        started = perf_counter()
        maps = _map_pairs([states for states, *_ in read], show)
        seconds["cka"] = perf_counter() - started
    warned = [*task.warnings, *(warning for *_, warnings in read for warning in warnings)]
    widest = max(states.shape[2] for states, *_ in read)
    if small := small_sample_warning(rows, widest):
        warned.append(small)
    result = Comparison(
        models=[model for _, model, _ in read],
        task={"name": task.name, "kind": task.kind, **({"words_used": rows} if words else {})},
        settings={
            **task.origin,
            **{name: getattr(request, name) for name in options_of(CompareRequest)},
            "versions": {name: version(name) for name in ("torch", "transformers")},
        },
        examples=len(split),
        maps=[_list_map(pair, similarity) for pair, similarity in maps.items()],
        clusters=[_describe_clusters(maps[i, i]) for i in range(len(read))],
        warnings=list(dict.fromkeys(warned)),
        seconds=seconds,
    )
    log_warnings(__name__, result.warnings)
    return result


def _choose_pooling(models: Sequence[Encoder | str | Path], *, words: bool) -> Pooling:
    """Choose one token of each text, the same in all models if they read the same one.

    Words are cut into tokens in other ways by other models, so that those of each are averaged.
    """
    if words:
        return "mean"
    families = [
        # Without the weights of a model that is not loaded yet.
        model.family if isinstance(model, Encoder) else load_config(str(model))[1]
        for model in models
    ]
    reads = {family.reads for family in families}
    if "last" not in reads:
        return "cls"
    return "last" if len(reads) == 1 else "mean"


def _read(
    model: Encoder | str | Path,
    split: Split,
    pooling: Pooling,
    max_length: int,
    cache_limit: int,
    seconds: dict[str, float],
    show: Show,
) -> tuple[States, dict[str, Any], list[str]]:
    """Return the states of a model, what is known of it, and warnings."""
    encoder = model if isinstance(model, Encoder) else Encoder.load(model)
    extractor = Extractor(encoder, (pooling,), max_length, cache_limit, show, seconds)
    extracted = extractor.read(split, None, f"reading with {encoder.name}", keep=True)
    warnings = [*encoder.notes, *extracted.warnings]
    what = f"inputs of {encoder.name}"
    warnings += warn_of_cut_inputs(extracted.cut, extracted.lengths, encoder, max_length, what=what)
    described = {
        "name": encoder.name,
        "source": encoder.source,
        "revision": encoder.revision,
        "family": encoder.model.config.model_type,
        "blocks": encoder.blocks,
        "hidden_size": encoder.model.config.hidden_size,
        "editing": encoder.editing,
        "precision": encoder.precision,
        "device": encoder.device.type,
    }
    states = extracted.states[pooling]
    if broken := [s for s, state in enumerate(states) if not np.isfinite(state).all()]:
        warnings.append(f"states {broken} of {encoder.name} hold values that are not finite")
    return states, described, warnings


def _map_pairs(states: Sequence[States], show: Show) -> dict[tuple[int, int], SimilarityMap]:
    """Compare every model with itself and with those after it.

    Raises:
        InputError: if no state of any model varies over the examples.
    """
    pairs = list(combinations_with_replacement(range(len(states)), 2))
    maps = {
        (i, j): cka_map(
            states[i],
            None if i == j else states[j],
            progress=partial(show, f"comparing {number} of {len(pairs)}"),
        )
        for number, (i, j) in enumerate(pairs, start=1)
    }
    if all(value is None for pair in maps.values() for line in pair.biased for value in line):
        raise InputError(
            "no state of any model varies over these examples, so there is nothing to compare; "
            "check which column is read as text"
        )
    return maps


def _draw(task: Task, examples: int | Literal["all"], seed: int) -> Split:
    split = task.train if task.validation is None else task.validation
    if examples == "all":
        return split
    wanted = check_integer("examples", examples, 1, len(split), remedy="'all' uses every one")
    rows = sample(
        split, len(task.labels), examples=wanted, balanced=False, per_class=None, seed=seed
    )
    return split.take(rows)


def _list_map(pair: tuple[int, int], similarity: SimilarityMap) -> dict[str, Any]:
    return {
        "of": list(pair),
        "rows": list(range(len(similarity.biased))),
        "columns": list(range(len(similarity.biased[0]))),
        "cka": [list(line) for line in similarity.biased],
        "cka_debiased": [list(line) for line in similarity.debiased],
    }


def _describe_clusters(similarity: SimilarityMap) -> dict[str, Any]:
    both = {
        "cka": find_clusters(similarity.biased),
        "cka_debiased": find_clusters(similarity.debiased),
    }
    return {name: None if one is None else asdict(one) for name, one in both.items()}
