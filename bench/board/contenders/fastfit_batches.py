# /// script
# dependencies = [
#   "fast-fit==1.2.1", "datasets==2.21.0", "transformers==4.44.2", "accelerate==0.34.2",
#   "numpy==2.2.6", "scikit-learn==1.9.1", "pandas",
# ]
# ///
"""FastFit, with the options of its own example: contrasts within the batch, for 40 epochs."""

from types import SimpleNamespace

import fastfit.train
from datasets import Dataset, DatasetDict
from fastfit import FastFit, FastFitTrainer
from transformers import AutoTokenizer, pipeline

from contender import BATCH, LENGTH, Given, Predict, compete


def make(given: Given) -> None:
    # It loads a script from the network, for a figure that decides nothing here.
    fastfit.train.load_metric = lambda *_, **__: SimpleNamespace(compute=lambda **_: {})
    # Numbers of the classes go into a column "label", which may not have their names already.
    named = given.train[["text", "label"]].rename(columns={"label": "name"})
    rows = Dataset.from_pandas(named, preserve_index=False)
    trainer = FastFitTrainer(
        model_name_or_path=given.model,
        label_column_name="name",
        text_column_name="text",
        num_train_epochs=40,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        max_text_length=LENGTH,
        dataloader_drop_last=False,
        num_repeats=4,
        optim="adafactor",
        clf_loss_factor=0.1,
        fp16=False,
        use_cpu=True,
        seed=given.seed,
        output_dir=str(given.folder / "trainer"),
        dataset=DatasetDict(train=rows, validation=rows, test=rows),  # it asks for all three
    )
    trainer.train().save_pretrained(str(given.folder))
    AutoTokenizer.from_pretrained(given.model).save_pretrained(str(given.folder))


def load(given: Given) -> Predict:
    network = FastFit.from_pretrained(str(given.folder))
    read = ["input_ids", "attention_mask"]  # it takes no types of tokens
    tokenizer = AutoTokenizer.from_pretrained(str(given.folder), model_input_names=read)
    classify = pipeline("text-classification", model=network, tokenizer=tokenizer)
    return lambda texts: [
        one["label"]
        for one in classify(texts, batch_size=BATCH, truncation=True, max_length=LENGTH)
    ]


if __name__ == "__main__":
    compete(make, load)
