"""Logistic regression on embeddings of sentence-transformers, as both come."""

import joblib
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

from contender import BATCH, LENGTH, Given, Predict, compete

OPTIONS = {"batch_size": BATCH, "show_progress_bar": False}


def make(given: Given) -> None:
    encoder = SentenceTransformer(given.model, device="cpu").float()
    encoder.max_seq_length = LENGTH
    X = encoder.encode(list(given.train["text"]), **OPTIONS)
    fitted = LogisticRegression(max_iter=1000).fit(X, given.train["label"])
    encoder.save(str(given.folder))
    joblib.dump(fitted, given.folder / "regression")


def load(given: Given) -> Predict:
    encoder = SentenceTransformer(str(given.folder), device="cpu")
    fitted = joblib.load(given.folder / "regression")
    return lambda texts: fitted.predict_proba(encoder.encode(texts, **OPTIONS))


if __name__ == "__main__":
    compete(make, load)
