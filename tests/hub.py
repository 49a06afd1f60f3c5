"""A fake Hugging Face hub on this machine that serves local folders as repositories.

`huggingface_hub` reads `HF_ENDPOINT` when it is imported, so whatever is to ask this hub runs in a
process of its own, started with `Hub.environment`.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

_ID = r"(?P<id>[^/]+/[^/]+|[^/]+)"
_API = re.compile(
    rf"/api/(?P<kind>models|datasets)/{_ID}"
    r"(?:/(?P<verb>revision|tree|paths-info)/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?"
)
_RESOLVE = re.compile(rf"/(?:(?P<kind>datasets)/)?{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass(frozen=True)
class Hub:
    """A running hub and everything it was asked."""

    url: str
    requests: list[str] = field(default_factory=list)  # such as "HEAD /org/name/resolve/main/a.txt"

    def environment(self, home: Path) -> dict[str, str]:
        """Build the environment of a process that sees this hub and keeps its cache in `home`."""
        ours = ("HF_", "TRANSFORMERS_", "HUGGINGFACE_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(ours) and not name.upper().endswith("_PROXY")
        }
        return kept | {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        }


@contextmanager
def hub(
    models: Mapping[str, Path], datasets: Mapping[str, Path], gated: Collection[str] = ()
) -> Iterator[Hub]:
    """Serve folders as repositories until the block ends.

    Args:
        models: the folder of each model, by its id.
        datasets: the folder of each data set, by its id.
        gated: the ids whose files are refused, as those of a licence that nobody accepted.
    """
    repositories = {
        (kind, name): _read(folder)
        for kind, folders in (("models", models), ("datasets", datasets))
        for name, folder in folders.items()
    }
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            requests.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = _answer(repositories, gated, self.path, body)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_POST = answer  # noqa: N815 (the library's names)

        def log_message(self, *_: object) -> None:
            """Stay silent: the requests are kept."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Hub(f"http://127.0.0.1:{server.server_port}", requests)
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class _Repository:
    """The files of one repository by their path in it, all in one commit on `main`."""

    files: dict[str, bytes]
    commit: str


def _read(folder: Path) -> _Repository:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    listing = "\n".join(f"{path} {_blob(data)}" for path, data in files.items())
    return _Repository(files, hashlib.sha1(listing.encode()).hexdigest())


def _blob(data: bytes) -> str:
    """Name a file's content as git does."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def _answer(
    repositories: Mapping[tuple[str, str], _Repository],
    gated: Collection[str],
    address: str,
    body: bytes,
) -> _Answer:
    """Answer a request for `address`; `body` is its form."""
    url = urlsplit(address)
    match = _API.fullmatch(url.path) or _RESOLVE.fullmatch(url.path)
    if match is None:
        return _Answer(404)
    asked = {key: unquote(text) for key, text in match.groupdict().items() if text}
    repository = repositories.get((asked.get("kind", "models"), asked["id"]))
    if repository is None:
        return _refusal(404, "RepoNotFound")
    if asked.get("revision", "main") not in ("main", repository.commit):
        return _refusal(404, "RevisionNotFound")
    if match.re is _RESOLVE:
        refused = asked["id"] in gated
        return _refusal(403, "GatedRepo") if refused else _file(repository, asked["path"])
    if asked.get("verb") == "tree":
        recursive = parse_qs(url.query).get("recursive", [""])[0].lower() == "true"
        entries = _under(repository, asked.get("path", ""), recursive)
        return _as_json(entries) if entries else _refusal(404, "EntryNotFound")
    if asked.get("verb") == "paths-info":
        tree = {entry["path"]: entry for entry in _under(repository, "", True)}
        wanted = [path.strip("/") for path in parse_qs(body.decode()).get("paths", [])]
        return _as_json([tree[path] for path in wanted if path in tree])
    return _as_json(_card(asked["id"], repository, asked["id"] in gated))


def _refusal(status: int, code: str) -> _Answer:
    return _Answer(status, {"X-Error-Code": code})


def _as_json(value: object) -> _Answer:
    return _Answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


def _file(repository: _Repository, path: str) -> _Answer:
    headers = {"X-Repo-Commit": repository.commit}
    data = repository.files.get(path)
    if data is None:
        return _Answer(404, headers | {"X-Error-Code": "EntryNotFound"})
    headers["ETag"] = f'"{_blob(data)}"'
    return _Answer(200, headers, data)


def _card(name: str, repository: _Repository, gated: bool) -> dict[str, object]:
    return {
        "id": name,
        "sha": repository.commit,
        "private": False,
        "gated": "manual" if gated else False,
        "tags": [],
        "siblings": [{"rfilename": path} for path in repository.files],
    }


def _under(repository: _Repository, folder: str, recursive: bool) -> list[dict[str, object]]:
    """List the files and folders below a folder of the repository, "" being its root."""
    entries: dict[str, dict[str, object]] = {}
    prefix = f"{folder.strip('/')}/" if folder else ""
    for path, data in repository.files.items():
        if not path.startswith(prefix):
            continue
        inner = path.removeprefix(prefix).split("/")
        for depth in range(1, len(inner)):
            parent = prefix + "/".join(inner[:depth])
            if recursive or depth == 1:
                oid = hashlib.sha1(parent.encode()).hexdigest()
                entries[parent] = {"type": "directory", "path": parent, "oid": oid, "size": 0}
        if recursive or len(inner) == 1:
            entry = {"type": "file", "path": path, "oid": _blob(data), "size": len(data)}
            entries[path] = entry
    return list(entries.values())
