"""`predict`: the rows of files as they were, with what a tuned model says of each."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Unpack

import numpy as np

from layerscout.data import (
    WRITTEN,
    Kind,
    TextRows,
    Texts,
    choose_file,
    join_schemas,
    open_texts,
    writing_rows,
)
from layerscout.errors import InputError
from layerscout.files import (
    check_output_folder,
    make_output_folder,
    read_json,
    remove_folder,
    replace_files,
    write_files,
)
from layerscout.models import Precision
from layerscout.plans import PredictRequest, add_options, options_of, resolve_request
from layerscout.predicting.cluster import Asked, Loading, find_logits
from layerscout.predicting.predictor import Predictor, check_kind, find_model, find_shares, load
from layerscout.progress import Show, log_warnings, say, show_progress

if TYPE_CHECKING:
    from layerscout.cluster import Cluster
    from layerscout.plans import PredictOptions

# Rows that are sorted by length together, and kept when a run is stopped: below a minute of a base
# model on two cores.
CHUNK = 2048

# What finds the logits of chunks, in their order.
Find = Callable[[Iterable[Asked]], Generator[np.ndarray | None]]

# What is no word on a line of CoNLL.
NO_WORD = re.compile(r"\A\s*\Z|[\t\r\n]")


@dataclass(frozen=True)
class Predictions:
    """What was predicted of a file.

    Attributes:
        path: what was written; None for standard output.
        rows: how many.
        computed: how many of them in this run; the others an earlier one did before it was stopped.
        seconds: what predicting them took, without loading.
        warnings: what the reader of the predictions should know.
    """

    path: Path | None
    rows: int
    computed: int
    seconds: float
    warnings: tuple[str, ...] = ()


@add_options(PredictRequest)
def predict(
    model: str | Path,
    texts: str | Path,
    output: str | Path | None = None,
    *,
    request: PredictRequest | None = None,
    base: str | Path | None = None,
    cluster: Cluster | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    progress: bool | Show = True,
    **options: Unpack[PredictOptions],
) -> Predictions:
    """Write the rows of a file with what a tuned model predicts for each.

    They keep their order and columns; "prediction" and the probabilities are added. Memory does not
    grow with the file. A run that was stopped resumes when it is started again.

    Args:
        model: as for `layerscout.load`.
        texts: a file, a folder or a data set, as for `Task.load`, whose rows need no labels; a .txt
            file with a text on each line; or "-" for standard input.
        output: a .csv, .tsv, .jsonl, .parquet or, for words, .conll file, which is replaced; "-"
            for CSV on standard output. By default a file beside the texts, which must be new.
        request: the options as one value, in place of `options`.
        base: as for `layerscout.load`.
        cluster: whose machines share the rows; they load the model by its name.
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.
        progress: as for `layerscout.evaluate`.
        **options: all other options: the attributes of `layerscout.plans.PredictRequest`.

    Raises:
        InputError: if the model or the rows cannot be used.
        DiskError: if the rows cannot be written.
    """
    request = resolve_request(PredictRequest, request, options)
    path = _choose_output(texts, output)
    loading: Loading = (model, base, precision, request.max_length)
    predictor = _load(loading, device, cluster)
    before = _read_settings(model)
    rows = open_texts(texts, predictor.kind, before=before, **_of_reading(request))
    suffix = ".csv" if path is None else path.suffix.lower()
    names, schema, total, warnings = _survey(rows, predictor, request, suffix)
    warnings += _compare_pairs(before, rows)
    used = predictor.encoder.precision if cluster is None else precision
    kept = Kept() if path is None or total <= CHUNK else Kept.of(path, predictor, used)
    started, computed = perf_counter(), 0
    with (
        show_progress(progress) as show,
        _opening(path) as file,
        writing_rows(file, suffix, names, schema) as write,
        _spreading(cluster, predictor, loading) as find,
    ):
        advance = _follow_rows(show, total)
        for chunk, logits, new in _find_logits(rows.read(CHUNK), kept, predictor, find, advance):
            added = _tabulate(predictor, request, chunk.texts, logits)
            words = {rows.templates[0].written: chunk.texts} if suffix == ".conll" else {}
            write(chunk.table, words | added)
            computed += len(chunk) if new else 0
    kept.remove()
    log_warnings(__name__, warnings)
    seconds = perf_counter() - started
    return Predictions(path, total, computed, seconds, tuple(warnings))


def _load(loading: Loading, device: str, cluster: Cluster | None) -> Predictor:
    """Load the model; where a cluster runs it, it is here only to say what will be written.

    Raises:
        InputError: if it cannot be loaded, or machines might differ in precision.
    """
    model, base, precision, longest = loading
    if cluster is None:
        return load(model, base, device=device, precision=precision, max_length=longest)
    if precision == "auto":
        raise InputError(
            "machines of a cluster may differ in the precision that suits them, got --precision "
            "auto; name one, or leave it out"
        )
    return load(model, base, device="cpu", max_length=longest)


def _of_reading(request: PredictRequest) -> dict[str, Any]:
    """Return the options that say how rows are read."""
    others = ("top_k", "threshold", "max_length")
    return {
        name: getattr(request, name) for name in options_of(PredictRequest) if name not in others
    }


def _choose_output(texts: str | Path, output: str | Path | None) -> Path | None:
    """Return the file that is written; None for standard output.

    Raises:
        InputError: if it cannot be, or would replace what nobody named.
    """
    if output == "-" or (output is None and texts == "-"):
        return None
    path = choose_file(texts) if output is None else Path(output).expanduser()
    if output is None and path.exists():
        raise InputError(
            f"{path} is already there; name another file with --output, or this one to replace it"
        )
    if path.suffix.lower() not in WRITTEN.values():
        raise InputError(
            f"--output must be {', '.join(dict.fromkeys(WRITTEN.values()))} or - for standard "
            f"output, got {path}"
        )
    above = (path, *path.resolve().parents)
    if path.exists() and Path(texts).exists() and any(one.samefile(texts) for one in above):
        raise InputError(f"--output {path} would replace the texts; name another file")
    check_output_folder(path.parent, path.name)
    return path


def _read_settings(model: str | Path) -> dict[str, Any] | None:
    """Return what was read in the tuning of a model, where its `result.json` is beside it.

    The columns are those that were read, unless the task had a name, which then stands for them.
    """
    with suppress(OSError, ValueError, LookupError, TypeError):
        about = read_json(Path(find_model(model)).parent / "result.json")
        columns = about["task"]["columns"]
        named = about["settings"] if about["settings"]["task"] is not None else columns
        read = {name: named.get(name) for name in ("task", "text", "text_pair")}
        return read | {"pairs": "text_pair" in columns}
    return None


def _compare_pairs(before: dict[str, Any] | None, rows: TextRows) -> list[str]:
    """Warn if single texts were tuned on and pairs are read, or the other way round."""
    pairs = len(rows.templates) > 1
    if before is None or rows.kind == "multiple_choice" or before["pairs"] == pairs:
        return []
    was, now = ("single texts", "pairs") if pairs else ("pairs of texts", "single texts")
    return [
        f"the model was tuned on {was}, and {rows.source.name} is read as {now}; see --text-pair"
    ]


def _survey(
    rows: TextRows, predictor: Predictor, request: PredictRequest, suffix: str
) -> tuple[list[str], Any, int, list[str]]:
    """Read all rows once, so that no fault shows only after hours of work.

    Returns:
        The names of their columns, their schema in Parquet, how many rows there are, and warnings.

    Raises:
        InputError: if they cannot be read or written so.
    """
    several: Kind = "multi_label_classification"
    if request.top_k is not None:
        check_kind(predictor, "top-k", ["classification", several, "multiple_choice"])
    if request.threshold is not None:
        check_kind(predictor, "threshold", [several])
    if suffix == ".conll":
        check_kind(predictor, "output .conll", ["token_classification"])
        if not rows.holds_words:
            raise InputError("CoNLL is written of lists of words; name a .jsonl file with --output")
    names: dict[str, None] = {}
    schema = None
    total = blank = 0
    notes: tuple[str, ...] = ()
    chunk = None
    for chunk in rows.read(CHUNK):
        names |= dict.fromkeys(chunk.table.columns)
        total += len(chunk)
        blank += sum(not text or (isinstance(text, str) and text.isspace()) for text in chunk.texts)
        notes = chunk.table.notes
        if suffix == ".parquet":
            schema = join_schemas(schema, chunk.table)
        words = chain(*chunk.texts) if suffix == ".conll" else ()
        if (odd := next(filter(NO_WORD.search, words), None)) is not None:
            raise InputError(
                f"words in CoNLL must not be blank or hold tabs and line ends, {rows.source.name} "
                f"has {odd!r:.60}; name a .jsonl file with --output"
            )
    if chunk is None:
        raise InputError(f"{rows.source.name} has no rows with a text")
    one = 1 if chunk.pairs is None or predictor.kind != "multiple_choice" else len(chunk.pairs[0])
    outputs = max(one, len(predictor.labels), 1)
    added = _tabulate(predictor, request, ["a"], np.zeros((1, outputs)))
    if taken := [name for name in added if name in names]:
        raise InputError(
            f"{rows.source.name} already has the column {taken[0]!r}, which is to be added; rename "
            "it, or leave it out"
        )
    warnings = [*notes]
    if blank:
        warnings.append(f"{blank:,} of {total:,} rows of {rows.source.name} have an empty text")
    return list(names), schema, total, warnings


def _tabulate(
    predictor: Predictor, request: PredictRequest, texts: Sequence[Any], logits: np.ndarray
) -> dict[str, Any]:
    """Return the columns that are added to n rows."""
    added = {"prediction": predictor.decide(texts, logits, request.threshold)}
    if isinstance(added["prediction"], np.ndarray) and added["prediction"].dtype.kind == "U":
        added["prediction"] = added["prediction"].tolist()
    if predictor.kind in ("regression", "token_classification"):
        return added
    shares = find_shares(predictor.kind, logits)
    names = predictor.labels or range(logits.shape[1])
    if request.top_k is None:
        return added | {f"probability_{name}": shares[:, k] for k, name in enumerate(names)}
    best = np.argsort(-shares, axis=1, kind="stable")[:, : request.top_k]
    for place, ids in enumerate(best.T, 1):
        column = [names[k] for k in ids]
        added[f"top_{place}"] = column if predictor.labels else ids
        added[f"probability_{place}"] = shares[np.arange(len(ids)), ids]
    return added


@contextmanager
def _spreading(
    cluster: Cluster | None, predictor: Predictor, loading: Loading
) -> Iterator[Find | None]:
    """Join a cluster, if there is one; yield what finds logits on its machines."""
    if cluster is None:
        yield None
        return
    with cluster.spread() as (run, device):
        yield partial(run, partial(find_logits, predictor.fingerprint(), device, loading))


def _find_logits(
    chunks: Iterable[Texts],
    kept: Kept,
    predictor: Predictor,
    find: Find | None,
    advance: Callable[[int, int], None],
) -> Iterator[tuple[Texts, np.ndarray, bool]]:
    """Yield chunks with their logits, kept or found here or on a cluster; and whether found."""
    sent: deque[tuple[Texts, Path | None, np.ndarray | None]] = deque()

    def ask() -> Iterator[Asked]:
        for number, chunk in enumerate(chunks):
            place = kept.locate(number, chunk)
            sent.append((chunk, place, _read_logits(place)))
            yield (chunk.texts, chunk.pairs) if sent[-1][-1] is None else None

    def find_here(asked: Iterable[Asked]) -> Generator[np.ndarray | None]:
        for one in asked:
            yield one and predictor.find_logits(*one, lambda rows: advance(rows, rows))

    with closing((find or find_here)(ask())) as found:
        for new in found:
            chunk, place, logits = sent.popleft()
            if logits is None:
                assert new is not None, "it was asked for"
                logits = new
                _keep_logits(place, logits)
            if new is None or find is not None:
                advance(len(chunk), 0 if new is None else len(chunk))
            yield chunk, logits, new is not None


@contextmanager
def _opening(path: Path | None) -> Iterator[Path | IO[str]]:
    """Yield what is written into: a file that takes its place once it is whole, or the terminal."""
    if path is None:
        yield sys.stdout
        return
    make_output_folder(path.parent)
    with replace_files(path) as [temporary]:
        yield temporary


def _follow_rows(show: Show, total: int) -> Callable[[int, int], None]:
    """Return what shows the rows that are done, and how many a second.

    It takes how many more are done, and how many of these were computed and not kept before.
    """
    started, done, computed = perf_counter(), 0, 0

    def advance(rows: int, new: int) -> None:
        nonlocal done, computed
        done, computed = done + rows, computed + new
        rate = computed / max(perf_counter() - started, 1e-9)
        show("predicting", done, total, f"{done:,} of {total:,} rows, {rate:,.0f}/s")

    return advance


@dataclass(frozen=True)
class Kept:
    """The logits of finished chunks, in a hidden folder beside the output until that is whole.

    A file is found by its number and a hash of the model and of the texts, so what has changed is
    never taken for what it was.

    Attributes:
        folder: of the files; None where nothing is kept.
        fingerprint: of the model.
        precision: that it computes in.
    """

    folder: Path | None = None
    fingerprint: str = ""
    precision: Precision = "float32"

    @classmethod
    def of(cls, path: Path, predictor: Predictor, precision: Precision) -> Kept:
        """Return what is kept for an output."""
        folder = path.with_name(f".{path.name}.layerscout-predict")
        return cls(folder, predictor.fingerprint(), precision)

    def locate(self, number: int, chunk: Texts) -> Path | None:
        """Return the file of a chunk; others of its number, of other texts or models, go."""
        if self.folder is None:
            return None
        content = json.dumps([self.fingerprint, self.precision, chunk.texts, chunk.pairs])
        name = f"{number:06}-{hashlib.sha256(content.encode()).hexdigest()[:32]}.npy"
        others = [file for file in self.folder.glob(f"{number:06}-*.npy") if file.name != name]
        for other in others:
            other.unlink(missing_ok=True)
        path = self.folder / name
        if number == 0 and (others or path.exists()):
            say(
                "the texts or the model have changed since an earlier run was stopped; predicting "
                "starts anew"
                if others
                else f"going on with what an earlier run left in {self.folder}"
            )
        return path

    def remove(self) -> None:
        """Remove all that was kept."""
        if self.folder is not None:
            remove_folder(self.folder)


def _read_logits(path: Path | None) -> np.ndarray | None:
    """Return the logits that were kept of a chunk, if they were."""
    if path is not None:
        with suppress(OSError, ValueError, EOFError):
            return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    return None


def _keep_logits(path: Path | None, logits: np.ndarray) -> None:
    """Keep the logits of a chunk."""
    if path is not None:
        content = BytesIO()
        np.save(content, logits)
        make_output_folder(path.parent)
        write_files({path: content.getvalue()})
