# /// script
# dependencies = ["model2vec[distill,train]==0.10.0", "scikit-learn==1.9.1", "pandas"]
# ///
"""model2vec: the model distilled into an embedding of each token, and its classifier on these."""

from model2vec.distill import distill
from model2vec.inference import StaticModelPipeline
from model2vec.train import StaticModelForClassification

from contender import Given, Predict, compete


def make(given: Given) -> None:
    static = distill(model_name=given.model, device="cpu")
    classifier = StaticModelForClassification.from_static_model(model=static)
    texts, labels = list(given.train["text"]), list(given.train["label"])
    classifier.fit(texts, labels, device="cpu", random_seed=given.seed)
    classifier.to_pipeline().save_pretrained(str(given.folder))


def load(given: Given) -> Predict:
    pipeline = StaticModelPipeline.from_pretrained(str(given.folder))
    assert [*pipeline.classes_] == given.names, "probabilities are in this order"
    return pipeline.predict_proba


if __name__ == "__main__":
    compete(make, load)
