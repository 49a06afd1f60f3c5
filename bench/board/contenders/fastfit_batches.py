# /// script
# dependencies = [
#   "fast-fit==1.2.1", "datasets==2.21.0", "transformers==4.44.2", "accelerate==0.34.2",
#   "numpy==2.2.6", "scikit-learn==1.9.1", "pandas",
# ]
# ///
"""FastFit, with the options of its own example: contrasts within the batch, for 40 epochs."""

from datasets import Dataset, DatasetDict
from fastfit import FastFit, FastFitTrainer
from transformers import AutoTokenizer, pipeline

from contender import BATCH, LENGTH, Given, Predict, compete


def make(given: Given) -> None:
    rows = Dataset.from_pandas(given.train[["text", "label"]], preserve_index=False)
    trainer = FastFitTrainer(
        model_name_or_path=given.model,
        label_column_name="label",
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
        dataset=DatasetDict(train=rows, validation=rows),
    )
    trainer.train().save_pretrained(str(given.folder))
    AutoTokenizer.from_pretrained(given.model).save_pretrained(str(given.folder))


def load(given: Given) -> Predict:
    network = FastFit.from_pretrained(str(given.folder))
    tokenizer = AutoTokenizer.from_pretrained(str(given.folder))
    classify = pipeline("text-classification", model=network, tokenizer=tokenizer)
    return lambda texts: [
        one["label"]
        for one in classify(texts, batch_size=BATCH, truncation=True, max_length=LENGTH)
    ]


if __name__ == "__main__":
    compete(make, load)
