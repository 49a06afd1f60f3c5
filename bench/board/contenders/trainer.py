"""Fine-tune with the Trainer of transformers: all weights, or LoRA's matrices (peft, --lora)."""

import argparse
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from contender import BATCH, LENGTH, Given, Predict, compete

WARMUP = 0.06
# The default of TrainingArguments; Hu et al. 2022 (Table 9, RoBERTa-base: 4e-4 and 5e-4).
RATES = {False: 5e-5, True: 5e-4}


def make(given: Given) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--lora", action="store_true")
    asked = parser.parse_args(given.rest)
    set_seed(given.seed)
    tokenizer, names = AutoTokenizer.from_pretrained(given.model), given.names
    network: Any = AutoModelForSequenceClassification.from_pretrained(
        given.model, id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)}
    ).float()  # from 5.0 on transformers keeps the file's type, in which Adam would round steps off
    if asked.lora:
        from peft import LoraConfig, TaskType, get_peft_model

        # Beside queries and values; peft has no such list for MPNet.
        targets = ["q", "v"] if network.config.model_type == "mpnet" else None
        options: Any = {"task_type": TaskType.SEQ_CLS, "target_modules": targets}
        network = get_peft_model(network, LoraConfig(r=8, lora_alpha=16, **options))
    encoded = tokenizer(list(given.train["text"]), truncation=True, max_length=LENGTH)
    rows = [
        {**{key: encoded[key][i] for key in encoded}, "labels": names.index(label)}
        for i, label in enumerate(given.train["label"])
    ]
    Trainer(
        model=network,
        args=TrainingArguments(
            output_dir=str(given.folder / "trainer"),
            num_train_epochs=asked.epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=RATES[asked.lora],
            warmup_steps=round(WARMUP * -(-len(rows) // BATCH) * asked.epochs),
            seed=given.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            train_sampling_strategy="group_by_length",
        ),
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
    ).train()
    if asked.lora:
        network = network.merge_and_unload()
    network.save_pretrained(given.folder)
    tokenizer.save_pretrained(given.folder)


def load(given: Given) -> Predict:
    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    network = AutoModelForSequenceClassification.from_pretrained(given.folder).float().eval()

    def predict(texts: list[str]) -> np.ndarray:
        encoded = tokenizer(texts, truncation=True, max_length=LENGTH)
        order = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
        found = np.zeros((len(texts), len(given.names)))
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                some = {key: [encoded[key][i] for i in rows] for key in encoded}
                batch = tokenizer.pad(some, return_tensors="pt")
                found[rows] = network(**batch).logits.double().softmax(-1).numpy()
        return found

    return predict


if __name__ == "__main__":
    compete(make, load)
