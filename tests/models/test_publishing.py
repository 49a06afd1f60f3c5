"""Pushing to the hub, of which nothing is asked here: its client is a stand-in."""

import pytest
from huggingface_hub import RepoUrl, errors

from inputs import expect_refused
from layerscout.errors import LayerscoutError
from layerscout.models import check_push, push


@pytest.fixture
def hub(monkeypatch):
    """Return what the hub is asked for; it has one model, me/taken."""
    asked = []

    class Api:
        def whoami(self):
            return {"name": "me"}

        def repo_exists(self, name):
            return name == "me/taken"

        def create_repo(self, name, **options):
            asked.append(("create", name, options))
            return RepoUrl(f"https://huggingface.co/{name if '/' in name else f'me/{name}'}")

        def upload_folder(self, **options):
            asked.append(("upload", options["repo_id"], options["folder_path"]))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    return asked, Api


def test_a_folder_is_pushed(hub, tmp_path):
    asked, _ = hub
    check_push("reviews")
    assert asked == []  # nothing is made before there is a model
    assert push(tmp_path, "reviews", private=True) == "https://huggingface.co/me/reviews"
    assert asked == [
        ("create", "reviews", {"private": True, "exist_ok": True}),
        ("upload", "me/reviews", tmp_path),
    ]


def test_a_model_that_is_there_is_not_replaced_unasked(hub):
    expect_refused("already has a model me/taken … --overwrite", check_push, "taken")
    check_push("me/taken", overwrite=True)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.LocalTokenNotFoundError("none"), "nobody is logged in … hf auth login"),
        (errors.HFValidationError("Repo id must"), "like me/reviews, got 'me/reviews': Repo"),
    ],
)
def test_nobody_and_no_name(hub, monkeypatch, error, message):
    def refuse(*_):
        raise error

    monkeypatch.setattr(hub[1], "whoami", refuse)
    expect_refused(message, check_push, "me/reviews")


def test_a_hub_that_cannot_be_reached(hub, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError("no route\nto host")

    monkeypatch.setattr(hub[1], "whoami", refuse)
    monkeypatch.setattr(hub[1], "upload_folder", refuse)
    with pytest.raises(LayerscoutError, match="cannot ask the hub for reviews: no route"):
        check_push("reviews")
    with pytest.raises(LayerscoutError, match=f"hf upload reviews {tmp_path}"):
        push(tmp_path, "reviews")
