"""Train what one would use in place of layerscout, from a CSV file to a saved model, and predict.

    python bench/frontier_peers.py train trainer MODEL train.csv FOLDER --epochs 3 --seed 0
    python bench/frontier_peers.py predict trainer FOLDER test.csv

SetFit and the adapters of AdapterHub need older versions of transformers than layerscout has, so
this file also runs in environments of their own, and imports only what a peer needs. A file has
the columns `text`, `label` and, for pairs, `second`. `predict` prints a line of JSON: the class of
each text, and the seconds of inference without loading. Every peer runs as its documentation
shows, with batches of 32 texts of up to 128 tokens, grouped by length where the peer can.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

BATCH, LENGTH, WARMUP = 32, 128, 0.06
PEERS = ("trainer", "lora", "houlsby", "regression", "setfit")

# The default of TrainingArguments; Hu et al. 2022 (Table 9, RoBERTa-base: 4e-4 and 5e-4); the
# middle one of the rates of Houlsby et al. 2019, §3.1.
RATES = {"trainer": 5e-5, "lora": 5e-4, "houlsby": 3e-4}


def read(path: str) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, dtype=str)


def texts_of(frame: pd.DataFrame) -> tuple[list[str], list[str] | None]:
    second = list(frame["second"]) if "second" in frame else None
    return list(frame["text"]), second


def train_with_trainer(
    kind: str, model: str, frame: pd.DataFrame, folder: Path, given: Any
) -> None:
    """Fine-tune all weights, LoRA's matrices (peft), or Houlsby's adapters (AdapterHub)."""
    import transformers
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    transformers.set_seed(given.seed)
    names = sorted(set(frame["label"]))
    tokenizer, network = load_pretrained(model, names)
    trainer_class: Any = Trainer
    if kind == "lora":
        network = add_lora(network)
    elif kind == "houlsby":
        import adapters

        trainer_class = adapters.AdapterTrainer
        network = add_adapters(network)
    encoded = tokenizer(*texts_of(frame), truncation=True, max_length=LENGTH)
    rows = [
        {**{key: encoded[key][i] for key in encoded}, "labels": names.index(label)}
        for i, label in enumerate(frame["label"])
    ]
    grouped = (
        {"train_sampling_strategy": "group_by_length"}
        if int(transformers.__version__.split(".")[0]) > 4
        else {"group_by_length": True}
    )
    steps = -(-len(rows) // BATCH) * given.epochs
    trainer_class(
        model=network,
        args=TrainingArguments(
            output_dir=str(folder / "trainer"),
            num_train_epochs=given.epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=RATES[kind],
            warmup_steps=round(WARMUP * steps),
            seed=given.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **grouped,
        ),
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
    ).train()
    if kind == "lora":
        network = network.merge_and_unload()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_pretrained(model: str, names: list[str]) -> tuple[Any, Any]:
    """Load a tokenizer and a classifier of some classes; both pad, those of decoders too."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(
        model, id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)}
    ).float()  # from 5.0 on transformers keeps the file's type, in which Adam would round steps off
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if network.config.pad_token_id is None:
        network.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, network


def add_lora(network: Any) -> Any:
    """Put LoRA's matrices beside the queries and values of each block, and freeze the rest."""
    from peft import LoraConfig, TaskType, get_peft_model

    targets = ["q", "v"] if network.config.model_type == "mpnet" else None
    options: Any = {"task_type": TaskType.SEQ_CLS, "target_modules": targets}
    return get_peft_model(network, LoraConfig(r=8, lora_alpha=16, **options))


def add_adapters(network: Any) -> Any:
    """Put Houlsby's two adapters into each block, and freeze everything else but the head."""
    import adapters

    # AdapterHub has no class for MPNet; this is the documented way to adapt other models.
    interface = adapters.AdapterModelInterface(
        adapter_methods=["bottleneck"],
        model_embeddings="embeddings",
        model_layers="encoder.layer",
        layer_self_attn="attention.attn",
        layer_cross_attn=None,
        attn_k_proj="k",
        attn_q_proj="q",
        attn_v_proj="v",
        attn_o_proj="o",
        layer_intermediate_proj="intermediate.dense",
        layer_output_proj="output.dense",
        layer_ln_1="attention.LayerNorm",
        layer_ln_2="output.LayerNorm",
        base_model="mpnet",
    )
    adapters.init(network, interface=interface if network.config.model_type == "mpnet" else None)
    if "task" not in network.adapters_config:  # a saved model has it
        network.add_adapter("task", config="double_seq_bn")
    network.train_adapter("task")
    network.set_active_adapters("task")
    return network


def predict_with_transformers(
    kind: str, folder: Path, frame: pd.DataFrame, base: str | None
) -> tuple[Any, float]:
    """Predict in batches of like length; with layerscout's small folder, from its base."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if (folder / "trained.safetensors").exists():
        import layerscout

        network = layerscout.load(folder, base).model
    else:
        network = AutoModelForSequenceClassification.from_pretrained(folder)
    if kind == "houlsby":
        from safetensors.torch import load_file

        network = add_adapters(network)
        # Not by `from_pretrained`, which would leave adapters at random where names differ.
        weights = load_file(folder / "model.safetensors")
        missing, unexpected = network.load_state_dict(weights, strict=False)
        # A second name of the embeddings.
        aliases = {"bert.prompt_tuning.base_model_embeddings.weight"}
        if unexpected or set(missing) - aliases:
            raise SystemExit(f"not loaded: {missing}, {unexpected}")
    network.float().eval()
    started = time.perf_counter()
    encoded = tokenizer(*texts_of(frame), truncation=True, max_length=LENGTH)
    order = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
    classes = np.zeros(len(frame), dtype=int)
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = tokenizer.pad(
                {key: [encoded[key][i] for i in rows] for key in encoded}, return_tensors="pt"
            )
            classes[rows] = network(**batch).logits.argmax(-1).numpy()
    return [network.config.id2label[int(one)] for one in classes], time.perf_counter() - started


def embed(encoder: Any, frame: pd.DataFrame) -> np.ndarray:
    """Embed texts; of a pair both embeddings, their distance and product (Conneau et al. 2017)."""
    first, second = texts_of(frame)
    options = {"batch_size": BATCH, "show_progress_bar": False}
    u = encoder.encode(first, **options)
    if second is None:
        return u
    v = encoder.encode(second, **options)
    return np.hstack([u, v, np.abs(u - v), u * v])


def train_regression(model: str, frame: pd.DataFrame, folder: Path) -> None:
    """Fit a logistic regression to embeddings."""
    import joblib
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    encoder = SentenceTransformer(model, device="cpu").float()
    encoder.max_seq_length = LENGTH
    fitted = LogisticRegression(max_iter=1000).fit(embed(encoder, frame), frame["label"])
    encoder.save(str(folder))
    joblib.dump(fitted, folder / "regression.joblib")


def predict_regression(folder: Path, frame: pd.DataFrame) -> tuple[Any, float]:
    import joblib
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(folder), device="cpu")
    fitted = joblib.load(folder / "regression.joblib")
    started = time.perf_counter()
    return list(fitted.predict(embed(encoder, frame))), time.perf_counter() - started


def train_setfit(model: str, frame: pd.DataFrame, folder: Path, given: Any) -> None:
    """Train on some pairs of texts of one class and as many of two for each text."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    network = SetFitModel.from_pretrained(model, labels=sorted(set(frame["label"])))
    network.model_body.max_seq_length = LENGTH
    Trainer(
        model=network,
        args=TrainingArguments(
            output_dir=str(folder / "trainer"),
            batch_size=16,
            num_epochs=1,
            num_iterations=given.epochs,
            seed=given.seed,
            save_strategy="no",
            report_to="none",
            show_progress_bar=False,
        ),
        train_dataset=Dataset.from_pandas(frame[["text", "label"]]),
    ).train()
    network.save_pretrained(str(folder))


def predict_setfit(folder: Path, frame: pd.DataFrame) -> tuple[Any, float]:
    from setfit import SetFitModel

    network = SetFitModel.from_pretrained(str(folder))
    started = time.perf_counter()
    found = network.predict(list(frame["text"]), batch_size=BATCH, show_progress_bar=False)
    return [str(one) for one in found], time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("train", "predict"):
        one = verbs.add_parser(verb)
        one.add_argument("peer", choices=[*PEERS, *(["layerscout"] if verb == "predict" else [])])
        if verb == "train":
            one.add_argument("model")
        else:
            one.add_argument("--base", help="of a small folder of layerscout")
        one.add_argument("data" if verb == "train" else "folder")
        one.add_argument("folder" if verb == "train" else "data")
        one.add_argument("--epochs", type=int, default=3, help="of SetFit: num_iterations")
        one.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    frame, folder = read(given.data), Path(given.folder)
    if given.verb == "train":
        if given.peer == "regression":
            train_regression(given.model, frame, folder)
        elif given.peer == "setfit":
            train_setfit(given.model, frame, folder, given)
        else:
            train_with_trainer(given.peer, given.model, frame, folder, given)
        return
    if given.peer == "regression":
        found, seconds = predict_regression(folder, frame)
    elif given.peer == "setfit":
        found, seconds = predict_setfit(folder, frame)
    else:
        found, seconds = predict_with_transformers(given.peer, folder, frame, given.base)
    print(json.dumps({"predictions": found, "seconds": seconds}))


if __name__ == "__main__":
    main()
