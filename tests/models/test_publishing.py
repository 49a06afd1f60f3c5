"""Pushing to the hub, of which nothing is asked here: its client is a stand-in."""

from typing import ClassVar

import pytest
from huggingface_hub import RepoUrl, errors

from inputs import expect_refused
from layerscout.errors import LayerscoutError
from layerscout.models import check_push, push


class Api:
    """A hub that has one model, me/taken."""

    calls: ClassVar[list] = []

    def whoami(self):
        return {"name": "me"}

    def repo_exists(self, name):
        return name == "me/taken"

    def create_repo(self, name, **options):
        self.calls.append(("create", name, options))
        return RepoUrl(f"https://huggingface.co/{name if '/' in name else f'me/{name}'}")

    def upload_folder(self, **options):
        self.calls.append(("upload", options["repo_id"], options["folder_path"]))


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(Api, "calls", [])
    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    return Api


def test_a_folder_is_pushed(api, tmp_path):
    check_push("reviews")
    assert api.calls == []  # nothing is made before there is a model
    assert push(tmp_path, "reviews", private=True) == "https://huggingface.co/me/reviews"
    created = ("create", "reviews", {"private": True, "exist_ok": True})
    assert api.calls == [created, ("upload", "me/reviews", tmp_path)]


def test_a_model_that_is_there_is_not_replaced_unasked(api):
    expect_refused("already has a model me/taken … --overwrite", check_push, "taken")
    check_push("me/taken", overwrite=True)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.LocalTokenNotFoundError("none"), "nobody is logged in.*hf auth login"),
        (errors.HFValidationError("Repo id must"), "like me/reviews, got 'me/reviews': Repo"),
        (OSError("no route\nto host"), "cannot ask the hub for me/reviews: no route"),
    ],
)
def test_what_the_hub_does_not_take(api, monkeypatch, tmp_path, error, words):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(api, "whoami", refuse)
    monkeypatch.setattr(api, "upload_folder", refuse)
    with pytest.raises(LayerscoutError, match=words):
        check_push("me/reviews")
    if not isinstance(error, errors.LocalTokenNotFoundError):
        with pytest.raises(LayerscoutError, match=f"hf upload reviews {tmp_path}"):
            push(tmp_path, "reviews")
