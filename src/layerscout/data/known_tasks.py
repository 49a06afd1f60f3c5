"""The known benchmark tasks: a row each."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A known benchmark task.

    Attributes:
        hub: the repository on the hub, with the configuration where it has several.
        inputs: alternatives (hub copies and local ones name their columns differently), each a
            template of the text and of its pair; several pairs are the choices of one example.
            `{column}` stands for the column, `{column[0]}` for an item of a list, and
            `{column:filter}` applies one of `FILTERS`.
        labels: class names by id; none for regression.
        metric: what the benchmark reports.
    """

    hub: str
    inputs: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    metric: str = "accuracy"


SENTENCE = (("{sentence}",), ("{sentence1}",))
SENTENCES = ("{sentence1}", "{sentence2}")
PREMISE = (("{premise}", "{hypothesis}"), SENTENCES)
CHOICE = ("wrong", "right")
TRUTH = ("False", "True")
ENTAILMENT = ("entailment", "not_entailment")

KNOWN: Mapping[str, Known] = {
    "cola": Known(
        "nyu-mll/glue/cola", SENTENCE, ("unacceptable", "acceptable"), "matthews_correlation"
    ),
    "sst2": Known("nyu-mll/glue/sst2", SENTENCE, ("negative", "positive")),
    "mrpc": Known("nyu-mll/glue/mrpc", (SENTENCES,), ("not_equivalent", "equivalent"), "f1"),
    "qqp": Known(
        "nyu-mll/glue/qqp",
        (("{question1}", "{question2}"), SENTENCES),
        ("not_duplicate", "duplicate"),
        "f1",
    ),
    "stsb": Known("nyu-mll/glue/stsb", (SENTENCES,), (), "pearson_spearman"),
    "mnli": Known("nyu-mll/glue/mnli", PREMISE, ("entailment", "neutral", "contradiction")),
    "qnli": Known("nyu-mll/glue/qnli", (("{question}", "{sentence}"), SENTENCES), ENTAILMENT),
    "rte": Known("nyu-mll/glue/rte", (SENTENCES, PREMISE[0]), ENTAILMENT),
    "wnli": Known("nyu-mll/glue/wnli", (SENTENCES,), ("not_entailment", "entailment")),
    "boolq": Known("aps/super_glue/boolq", (("{passage}", "{question}"), SENTENCES), TRUTH),
    "cb": Known("aps/super_glue/cb", PREMISE, ("entailment", "contradiction", "neutral")),
    "copa": Known(
        "aps/super_glue/copa",
        (("{premise:clause} {question:connective}", "{choice1}", "{choice2}"),),
        CHOICE,
    ),
    "multirc": Known(
        "aps/super_glue/multirc",
        (("{paragraph}", "{question} {answer}"), ("{sentence1}", "{question} {answer}")),
        TRUTH,
    ),
    "wic": Known("aps/super_glue/wic", (("{word}: {sentence1}", "{sentence2}"),), TRUTH),
    "wsc": Known(
        "aps/super_glue/wsc",
        (
            ("{text}", '"{span2_text}" refers to "{span1_text}".'),
            ("{sentence1}", '"{span2_text}" refers to "{span1_text}".'),
        ),
        TRUTH,
    ),
    "yelp_polarity": Known("fancyzhx/yelp_polarity", (("{text}",),), ("negative", "positive")),
    "hellaswag": Known(
        "Rowan/hellaswag", (("{ctx}", *(f"{{endings[{item}]}}" for item in range(4))),), CHOICE
    ),
    "cosmos_qa": Known(
        "allenai/cosmos_qa",
        (("{context}", *(f"{{question}} {{answer{item}}}" for item in range(4))),),
        CHOICE,
    ),
}


def find_known_task(hub: str) -> str | None:
    """Return the known task of a data set on the hub, None if it is no known one.

    Args:
        hub: `owner/name[/config]`.
    """
    hub = hub.removesuffix(".fixed")  # the hub's repaired WSC
    matches = (name for name, known in KNOWN.items() if f"{hub}/".startswith(f"{known.hub}/"))
    return next(matches, None)
