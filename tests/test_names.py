"""Whatever is read, names in equal names out.

Classes, rows, columns, file formats and the outputs of the checkpoint stand in any order, and each
text tells its class, so that every mix-up of names costs accuracy and nothing else does.
"""

import copy
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

import layerscout as ls
from conftest import whole_only
from inputs import as_csv, as_jsonl
from layerscout.models import Encoder, export, make_classifier, unshare_weights
from layerscout.plans import make_plan
from telling import WORDS
from tiny import tiny_checkpoint, tiny_tokenizer
from tuned import cheaply

CLASSES = 4
# The words of each class, each of which is a token of its own.
_BERT = tiny_tokenizer("bert")
TOKENS = {str(word): _BERT(str(word), add_special_tokens=False)["input_ids"] for word in WORDS}
SINGLE = {tokens[0]: word for word, tokens in TOKENS.items() if len(tokens) == 1}
OWN = np.array_split([*SINGLE.values()], CLASSES)
CLASS_OF = {str(word): number for number, own in enumerate(OWN) for word in own}
# What people call classes; some are numbers, and in another order than their ids.
NAMES = (
    ("bad", "fair", "good", "best"),
    ("1", "2", "3", "4"),
    ("3", "0", "2", "1"),
    ("Entailment", "neutral", "CONTRADICTION", "n/a or other"),
    ("B-x", "I-x", "O", "B-y"),
    ("LABEL_2", "LABEL_0", "LABEL_3", "LABEL_1"),
    ("10", "9", "7", "100"),
    ("naïve", "日本", "a b", "x;y"),
)
KINDS = {
    "classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
}


@torch.no_grad()
def make_teller(folder, kind):
    """Make a tiny model that tells the classes apart without a mistake, and without training.

    A word's embedding is the axis of its class, and that of other tokens one more: of nothing a
    norm would make something. The block adds the mean of all tokens, so the first
    token has what the text tells; the rest of it does nothing. The pooler is the identity.
    """
    encoder = Encoder.load(tiny_checkpoint(folder, "bert", blocks=1), device="cpu")
    names = [f"c{number}" for number in range(CLASSES)]
    model = unshare_weights(make_classifier(encoder, make_plan("head:1", 1), names, kind=kind))
    axes = torch.eye(model.config.hidden_size)
    for name, parameter in model.named_parameters():
        parameter.fill_(1.0 if "LayerNorm.weight" in name else 0.0)
        if name.endswith(("value.weight", "attention.output.dense.weight", "pooler.dense.weight")):
            parameter.copy_(axes)
    model.bert.embeddings.word_embeddings.weight[:, CLASSES] = 1.0
    for word, number in CLASS_OF.items():
        model.bert.embeddings.word_embeddings.weight[TOKENS[word][0]] = axes[number]
    model.classifier.weight.copy_(4 * axes[:CLASSES])
    return encoder.tokenizer, model


@pytest.fixture(scope="module")
def teller(tmp_path_factory):
    """Return models that tell the classes apart, by kind of task."""
    folder = tmp_path_factory.mktemp("teller")
    return {kind: make_teller(folder / kind, kind) for kind in KINDS}


def write_rows(folder, name, form, rows, names, rng):
    """Write texts and class names as a file of some form, columns in any order; return its path.

    Args:
        form: the ending; of "ids" the ids of a `ClassLabel` in Parquet, of "csv-ids" those in CSV.
        rows: of a text, or a list of words, and of a class name, or one of each word.
        names: of the classes, by id.
    """
    words = isinstance(rows[0][0], list)
    text, label = ("tokens", "tags") if words else ("text", "label")
    columns = {text: [row[0] for row in rows], label: [row[1] for row in rows]}
    columns["source"] = [f"s{n}" for n in range(len(rows))]
    columns = {str(column): columns[column] for column in rng.permutation(list(columns))}
    ending = {"ids": "parquet", "csv-ids": "csv"}.get(form, form)
    path = folder / f"{name}.{ending}"
    if "ids" in form:
        columns[label] = [
            [names.index(tag) for tag in row] if words else names.index(row)
            for row in columns[label]
        ]
    if ending == "parquet":
        feature = {"_type": "ClassLabel", "names": names}
        features = {label: {"_type": "Sequence", "feature": feature} if words else feature}
        note = json.dumps({"info": {"features": features if form == "ids" else {}}}).encode()
        parquet.write_table(pa.table(columns).replace_schema_metadata({b"huggingface": note}), path)
    elif ending == "jsonl":
        path.write_text(as_jsonl(columns))
    elif ending == "json":
        path.write_text(f"[{','.join(as_jsonl(columns).splitlines())}]")
    elif ending == "conll":
        path.write_text("\n".join("".join(map("{} {}\n".format, *row)) for row in rows))
    else:
        columns = {
            column: [json.dumps(v) if isinstance(v, list) else v for v in values]
            for column, values in columns.items()
        }
        mark = "\t" if ending == "tsv" else ","
        path.write_text(as_csv(columns).replace('","', f'"{mark}"'))
    return path


class Draw:
    """A task and a checkpoint for it, in which only names tell which class is which."""

    def __init__(self, seed, teller, folder):
        rng, self.folder = np.random.default_rng(seed), folder
        self.kind = list(KINDS)[seed % 2]
        words = self.kind == "token_classification"
        count = int(rng.integers(2, CLASSES + 1))
        pool = NAMES[rng.integers(len(NAMES))]
        chosen = rng.permutation(CLASSES)[:count]
        self.names = dict(zip(chosen.tolist(), rng.permutation(pool).tolist(), strict=False))
        numbered = [[str(name) for name in rng.permutation([*self.names.values()])] for _ in "ab"]
        forms = ["csv", "json", "jsonl", "parquet", "ids", *(["conll"] if words else ["tsv"])]
        if words and any(" " in name for name in self.names.values()):
            forms.remove("conll")
        first = str(rng.choice(forms))
        if first == "ids" and not {*map(str, range(count))} <= {*numbered[0]}:
            forms.append("csv-ids")  # as `datasets` writes the other split
        second = str(rng.choice(forms))
        self.forms = first, second
        texts = [[self.write(n, rng, words) for n in rng.permutation(m)] for m in (16, 8)]
        train = write_rows(folder, "train", first, texts[0], numbered[0], rng)
        order = numbered[second == "ids"]
        self.paths = train, write_rows(folder, "validation", second, texts[1], order, rng)
        self.save_checkpoint(rng, *teller[self.kind])

    def write(self, number, rng, words):
        """Write a text or a list of words, and the name of its class, or of each word's."""
        classes = list(self.names)
        if words:
            text = [str(rng.choice(OWN[c])) for c in rng.permutation(classes * 2)]
        else:
            text = " ".join(rng.choice(OWN[classes[number % len(classes)]], 3))
        return text, self.true(text)

    def true(self, text):
        """Return the class name of a text, or of each word in a list."""
        if isinstance(text, str):
            return self.names[CLASS_OF[text.split()[0]]]
        return [self.names[CLASS_OF[word]] for word in text]

    def save_checkpoint(self, rng, tokenizer, model):
        """Save a model for these classes, in an order and perhaps a case of its own."""
        classes, model = rng.permutation(list(self.names)), copy.deepcopy(model)
        head = nn.Linear(model.classifier.in_features, len(classes))
        head.weight.data = model.classifier.weight.data[classes]
        head.bias.data.zero_()
        model.classifier, model.num_labels = head, len(classes)
        change = str.upper if rng.random() < 0.3 else str
        model.config.id2label = {n: change(self.names[int(c)]) for n, c in enumerate(classes)}
        model.config.label2id = {name: n for n, name in model.config.id2label.items()}
        export(model, tokenizer, self.folder / "model", "", max_length=32, dtype="float32")

    def check_names(self, checkpoint, split):
        """Check what a checkpoint predicts, by the names in it."""
        model = KINDS[self.kind].from_pretrained(checkpoint)
        texts = split.words if split.words else split.texts
        for text in texts:
            whole = text if isinstance(text, str) else " ".join(text)
            ids = model(**_BERT(whole, return_tensors="pt")).logits[0].argmax(-1)
            if isinstance(text, str):
                assert model.config.id2label[int(ids)] == self.true(text)
            else:
                assert [model.config.id2label[int(n)] for n in ids[1:-1]] == self.true(text)


@pytest.mark.parametrize(
    "seeds", [range(4), *whole_only(*(range(n, n + 30) for n in range(4, 304, 30)))], ids=str
)
def test_names_in_equal_names_out(teller, tmp_path, seeds):
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        draw = Draw(seed, teller, folder)
        task = ls.Task.load(draw.paths[0], validation=str(draw.paths[1]))
        assert task.kind == draw.kind
        for split in (task.train, task.validation):
            read = [task.labels[n] for n in split.labels]
            words = [word for words in split.words for word in words] if split.words else ()
            assert read == list(map(draw.true, split.texts)) if not words else draw.true(words)
        encoder = Encoder.load(folder / "model", device="cpu")
        plan = make_plan("head:1", 1)
        start = unshare_weights(make_classifier(encoder, plan, task.labels, kind=task.kind))
        export(start, encoder.tokenizer, folder / "out", "", max_length=32, dtype="float32")
        draw.check_names(folder / "out", task.validation)
        if seed % 10 == 0:
            found = ls.evaluate(folder / "model", task, progress=False)
            assert found.metrics["accuracy"] == 1.0
            result = cheaply(encoder, task, "top:1", epochs=1, learning_rate=1e-6)
            assert result.metrics["accuracy"] == 1.0
            result.save(folder / "tuned")
            draw.check_names(folder / "tuned" / "model", task.validation)
