"""Counting words: tf-idf and logistic regression, both as scikit-learn has them; no model."""

import joblib
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from contender import Given, Predict, compete


def make(given: Given) -> None:
    fitted = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    given.folder.mkdir()
    joblib.dump(fitted.fit(given.train["text"], given.train["label"]), given.folder / "words")


def load(given: Given) -> Predict:
    return joblib.load(given.folder / "words").predict_proba


if __name__ == "__main__":
    compete(make, load)
