"""The known benchmark tasks: a row each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal[
    "classification",
    "multi_label_classification",
    "token_classification",
    "regression",
    "multiple_choice",
]


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
        kind: as of `Task`.
        label: names of the column of the labels, of which the first that is there is read; none
            where it is found by the usual names.
    """

    hub: str
    inputs: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    metric: str = "accuracy"
    kind: Kind = "classification"
    label: tuple[str, ...] = ()


def benchmark(task: str) -> str:
    """Return the benchmark that a known task is of: "boolq" for boolq@lodha2023."""
    return task.partition("@")[0]


SENTENCE = (("{sentence}",), ("{sentence1}",))
SENTENCES = ("{sentence1}", "{sentence2}")
PREMISE = (("{premise}", "{hypothesis}"), SENTENCES)
CHOICE = ("wrong", "right")
TRUTH = ("False", "True")
ENTAILMENT = ("entailment", "not_entailment")
WORDS = (("{tokens}",), ("{words}",))
NAMED = ("ner_tags", "tags")  # the columns of named entities, on the hub and in CoNLL files

EMOTIONS = (
    *("admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion"),
    *("curiosity", "desire", "disappointment", "disapproval", "disgust", "embarrassment"),
    *("excitement", "fear", "gratitude", "grief", "joy", "love", "nervousness", "optimism"),
    *("pride", "realization", "relief", "remorse", "sadness", "surprise", "neutral"),
)
# In the order in which T-NER numbers them.
ONTONOTES = (
    *("O", "B-CARDINAL", "B-DATE", "I-DATE", "B-PERSON", "I-PERSON", "B-NORP", "B-GPE", "I-GPE"),
    *("B-LAW", "I-LAW", "B-ORG", "I-ORG", "B-PERCENT", "I-PERCENT", "B-ORDINAL", "B-MONEY"),
    *("I-MONEY", "B-WORK_OF_ART", "I-WORK_OF_ART", "B-FAC", "B-TIME", "I-CARDINAL", "B-LOC"),
    *("B-QUANTITY", "I-QUANTITY", "I-NORP", "I-LOC", "B-PRODUCT", "I-TIME", "B-EVENT", "I-EVENT"),
    *("I-FAC", "B-LANGUAGE", "I-PRODUCT", "I-ORDINAL", "I-LANGUAGE"),
)
# The 17 universal tags, and what the hub's copies give to words that are contracted, such as "du".
UPOS = (
    *("NOUN", "PUNCT", "ADP", "NUM", "SYM", "SCONJ", "ADJ", "PART", "DET", "CCONJ", "PROPN"),
    *("PRON", "X", "_", "ADV", "INTJ", "VERB", "AUX"),
)


def _choose(hub: str, *inputs: str) -> Known:
    """Return a task of choosing: the text, and the choices."""
    return Known(hub, (inputs,), CHOICE, kind="multiple_choice")


def _name(hub: str, labels: tuple[str, ...]) -> Known:
    """Return a task of named entities."""
    return Known(hub, WORDS, labels, "entity_f1", "token_classification", NAMED)


def _begin(*types: str) -> tuple[str, ...]:
    """Return the tags of spans of some types, outside first."""
    return ("O", *(f"{prefix}-{name}" for name in types for prefix in "BI"))


_TASKS: Mapping[str, Known] = {
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
    "stsb": Known("nyu-mll/glue/stsb", (SENTENCES,), (), "pearson_spearman", "regression"),
    "mnli": Known("nyu-mll/glue/mnli", PREMISE, ("entailment", "neutral", "contradiction")),
    "qnli": Known("nyu-mll/glue/qnli", (("{question}", "{sentence}"), SENTENCES), ENTAILMENT),
    "rte": Known("nyu-mll/glue/rte", (SENTENCES, PREMISE[0]), ENTAILMENT),
    "wnli": Known("nyu-mll/glue/wnli", (SENTENCES,), ("not_entailment", "entailment")),
    "boolq": Known("aps/super_glue/boolq", (("{passage}", "{question}"), SENTENCES), TRUTH),
    "cb": Known("aps/super_glue/cb", PREMISE, ("entailment", "contradiction", "neutral")),
    "copa": _choose(
        "aps/super_glue/copa", "{premise:clause} {question:connective}", "{choice1}", "{choice2}"
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
    "hellaswag": _choose(
        "Rowan/hellaswag", "{ctx}", *(f"{{endings[{item}]}}" for item in range(4))
    ),
    "cosmos_qa": _choose(
        "allenai/cosmos_qa", "{context}", *(f"{{question}} {{answer{item}}}" for item in range(4))
    ),
    "go_emotions": Known(
        "google-research-datasets/go_emotions/simplified",
        (("{text}",),),
        EMOTIONS,
        "micro_f1",
        "multi_label_classification",
    ),
    "wnut17": _name(
        "leondz/wnut_17",
        _begin("corporation", "creative-work", "group", "location", "person", "product"),
    ),
    "conll2003": _name("eriktks/conll2003", _begin("PER", "ORG", "LOC", "MISC")),
    "ontonotes5": _name("tner/ontonotes5", ONTONOTES),
    "ud_pos": Known(  # of any language: universal-dependencies/universal_dependencies/en_ewt
        "universal-dependencies/universal_dependencies",
        WORDS,
        UPOS,
        kind="token_classification",
        label=("upos",),
    ),
}

KNOWN: Mapping[str, Known] = {
    **_TASKS,
    # Other inputs of some tasks, as TASK@PAPER: those of the code that Lodha et al. 2023 published,
    # with BERT's [SEP] between parts of a text. The second alternatives are of local copies.
    "boolq@lodha2023": replace(
        _TASKS["boolq"],
        inputs=(("{question}", "{passage}"), ("{sentence2}", "{sentence1}")),
    ),
    "copa@lodha2023": replace(
        _TASKS["copa"], inputs=(("{premise} {question:asked}", "{choice1}", "{choice2}"),)
    ),
    "multirc@lodha2023": replace(
        _TASKS["multirc"],
        inputs=(
            ("{paragraph} {question}", "{answer}"),
            ("{sentence1} {question}", "{answer}"),
        ),
    ),
    "wic@lodha2023": replace(_TASKS["wic"], inputs=(("{sentence1}[SEP]{sentence2}[SEP]{word}",),)),
}


def find_known_task(hub: str, label: str | None = None) -> str | None:
    """Return the known task of a data set on the hub, None if it is no known one.

    Args:
        hub: `owner/name[/config]`.
        label: the column that was named for the labels; others than a task's make another task.
    """
    hub = hub.removesuffix(".fixed")  # the hub's repaired WSC
    for name, known in KNOWN.items():
        if f"{hub}/".startswith(f"{known.hub}/"):
            other = label is not None and known.label and label not in known.label
            return None if other else name
    return None
