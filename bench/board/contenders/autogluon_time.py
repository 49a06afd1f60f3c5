# /// script
# dependencies = [
#   "autogluon.multimodal==1.6.3", "torch==2.12.0", "torchvision==0.27.0", "pandas",
# ]
# ///
"""AutoGluon's MultiModalPredictor with this model, its defaults and a limit of its own, --time."""

import argparse

import pandas as pd
from autogluon.multimodal import MultiModalPredictor

from contender import LENGTH, Given, Predict, compete


def make(given: Given) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--time", type=int, required=True)
    asked = parser.parse_args(given.rest)
    predictor = MultiModalPredictor(
        label="label", path=str(given.folder), enable_progress_bar=False, verbosity=0
    )
    predictor.fit(
        given.train,
        time_limit=asked.time,
        seed=given.seed,
        hyperparameters={
            "model.names": ["hf_text"],
            "model.hf_text.checkpoint_name": given.model,
            "model.hf_text.max_text_len": LENGTH,
            "env.num_gpus": 0,
            "env.num_workers": 0,
            "env.num_workers_inference": 0,
        },
    )


def load(given: Given) -> Predict:
    predictor = MultiModalPredictor.load(str(given.folder), verbosity=0)

    def predict(texts: list[str]) -> pd.DataFrame:
        found = predictor.predict_proba(pd.DataFrame({"text": texts}), as_pandas=True)
        return found[given.names].to_numpy()

    return predict


if __name__ == "__main__":
    compete(make, load)
