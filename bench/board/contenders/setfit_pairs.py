# /// script
# dependencies = [
#   "setfit==1.1.3", "sentence-transformers==5.1.2", "datasets==4.4.1", "transformers==4.57.6",
#   "pandas",
# ]
# ///
"""SetFit as its paper has it: 20 pairs of each kind for a text, one epoch; else its defaults."""

from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments

from contender import BATCH, LENGTH, Given, Predict, compete


def make(given: Given) -> None:
    network = SetFitModel.from_pretrained(given.model, labels=given.names)
    network.model_body.max_seq_length = LENGTH
    asked = TrainingArguments(
        output_dir=str(given.folder / "trainer"),
        batch_size=16,
        num_epochs=1,
        num_iterations=20,
        seed=given.seed,
        save_strategy="no",
        report_to="none",
        show_progress_bar=False,
    )
    rows = Dataset.from_pandas(given.train[["text", "label"]])
    Trainer(model=network, args=asked, train_dataset=rows).train()
    network.save_pretrained(str(given.folder))


def load(given: Given) -> Predict:
    network = SetFitModel.from_pretrained(str(given.folder))
    classes = list(network.model_head.classes_)
    assert [str(one) for one in classes] == given.names, "probabilities are in this order"
    return lambda texts: network.predict_proba(
        texts, batch_size=BATCH, as_numpy=True, show_progress_bar=False
    )


if __name__ == "__main__":
    compete(make, load)
