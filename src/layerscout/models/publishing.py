"""Publishing a checkpoint on the hub."""

from __future__ import annotations

from pathlib import Path

from layerscout.runtime import InputError, LayerscoutError, first_line


def check_push(name: str, *, overwrite: bool = False) -> None:
    """Check, before any work, that a model can be pushed to the hub under a name.

    Args:
        name: such as "me/reviews", or "reviews" for the own account.
        overwrite: accept a model that is there already.

    Raises:
        InputError: if it is not a name, nobody is logged in, or there is such a model already.
        LayerscoutError: if the hub does not answer.
    """
    from huggingface_hub import HfApi, errors

    try:
        api = HfApi()
        account = api.whoami()["name"]
        wanted = name if "/" in name else f"{account}/{name}"
        taken = api.repo_exists(wanted)
    except errors.HFValidationError as error:
        raise InputError(
            f"a name on the hub is like me/reviews, got {name!r:.80}: {first_line(error)}"
        ) from error
    except errors.LocalTokenNotFoundError as error:
        raise InputError(
            "pushing to the hub needs an account, and nobody is logged in; run: hf auth login"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise LayerscoutError(f"cannot ask the hub for {name}: {first_line(error)}") from error
    if taken and not overwrite:
        raise InputError(
            f"the hub already has a model {wanted}; add a new version to it with --overwrite, or "
            "choose another name"
        )


def push(folder: str | Path, name: str, *, private: bool = False) -> str:
    """Push the folder of a checkpoint to the hub, with its model card.

    Args:
        folder: such as `model/` of a tuning.
        name: of the model there; see `check_push`.
        private: whether only the account sees it, if it is new.

    Returns:
        The address of the model.

    Raises:
        LayerscoutError: if the hub does not take it.
    """
    from huggingface_hub import HfApi, errors

    try:
        api = HfApi()
        made = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            commit_message="Add a model tuned with layerscout",
        )
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise LayerscoutError(
            f"cannot push to the hub: {first_line(error)}; the model is in {folder}, and "
            f"`hf upload {name} {folder}` tries again"
        ) from error
    return str(made)
