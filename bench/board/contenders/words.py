"""Counting words, without a model: tf-idf and logistic regression as scikit-learn has them.

But that words may have one letter, as they may in what `tune` compares with.
"""

import joblib
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from contender import Given, Predict, compete


def make(given: Given) -> None:
    words = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b")
    fitted = make_pipeline(words, LogisticRegression(max_iter=1000))
    given.folder.mkdir()
    joblib.dump(fitted.fit(given.train["text"], given.train["label"]), given.folder / "words")


def load(given: Given) -> Predict:
    return joblib.load(given.folder / "words").predict_proba


if __name__ == "__main__":
    compete(make, load)
