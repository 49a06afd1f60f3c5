"""What people rely on: no network, nothing unsafe, nothing outside its folder, no surprise."""

import ast
import json
import logging
import os
import re
import socket
import time
import warnings
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from layerscout.errors import InputError
from layerscout.studies import reports, study
from layerscout.yaml import read_yaml
from studying import recipe

SOURCE = Path(__file__).parents[1] / "src" / "layerscout"

# What no two runs have in common.
PASSING = ("seconds", "ended", "examples_per_second", "memory", "origin", "folder")


def lasting(content):
    """Leave out what no two runs have in common."""
    if isinstance(content, dict):
        return {name: lasting(v) for name, v in content.items() if name not in PASSING}
    return [lasting(item) for item in content] if isinstance(content, list) else content


@pytest.fixture
def verbs(run, tiny, reviews):
    """Return what runs every verb into a folder and returns the content of their JSON files."""

    def all_of_them(out):
        out.mkdir()
        mine = out / "mine.yaml"
        wanted = recipe(tiny, reviews, axes={"plan": ["top:1"]}, settings={"method": "lora"})
        mine.write_text(json.dumps(wanted.model_dump(exclude_defaults=True)))
        commands = [
            ("scan", tiny, reviews, "--score", "all", "-o", out / "scan"),
            ("plan", out / "scan", "--strategy", "top:1"),
            ("tune", tiny, reviews, "--plan", "top:1", "--epochs", 1, "-o", out / "tuned"),
            ("compare", tiny, reviews, "--validation", 0.2, "-o", out / "compared"),
            ("evaluate", out / "tuned" / "model", reviews, "-o", out / "judged"),
            ("truncate", tiny, "--head", 2, "-o", out / "short"),
            ("report", out / "scan", out / "tuned", "-o", out / "report"),
            ("study", mine, "-o", out / "study"),
        ]
        for command in commands:
            code, _, errors = run(*command, "-q")
            foreign = [line for line in errors.splitlines() if not line.startswith("warning: ")]
            assert (code, foreign) == (0, []), command[0]
        contents = {}
        for path in sorted(out.rglob("*.json")):
            if "model" not in path.parts and "short" not in path.parts:
                contents[str(path.relative_to(out))] = lasting(json.loads(path.read_text()))
        return contents

    return all_of_them


def test_no_verb_opens_a_connection_or_passes_on_a_warning(verbs, tmp_path, monkeypatch, caplog):
    def refused(self, address):
        raise AssertionError(f"a connection to {address}")

    for library in ("transformers", "huggingface_hub", "peft", "accelerate", "torch"):
        monkeypatch.setattr(logging.getLogger(library), "propagate", True)
    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **_: refused(None, address))
    with warnings.catch_warnings(record=True) as passed_on:
        warnings.simplefilter("default")
        for never_shown in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
            warnings.simplefilter("ignore", never_shown)
        assert len(verbs(tmp_path / "out")) >= 5
    assert [str(one.message) for one in passed_on] == []
    logged = [one for one in caplog.records if one.levelname != "DEBUG"]
    # Our own are those of the results, for callers that set up logging.
    others = [one.getMessage() for one in logged if not one.name.startswith("layerscout.")]
    assert others == []


@pytest.mark.whole
def test_what_a_seed_gives_once_it_gives_again(verbs, tmp_path, monkeypatch):
    contents = []
    for name in ("one", "two"):
        monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / f"cache of {name}"))
        written = json.dumps(verbs(tmp_path / name)).replace(str(tmp_path / name), "")
        contents.append(json.loads(written))
    assert contents[0] == contents[1]


def test_a_clock_that_jumps_harms_nothing(run, tiny, reviews, tmp_path, cache, monkeypatch):
    command = ("scan", tiny, reviews, "--json")
    first = lasting(json.loads(run(*command, "-o", tmp_path / "a")[1]))
    for offset in (-10, 10):  # years
        moment = time.time() + offset * 365 * 86400
        for path in cache.rglob("*"):
            os.utime(path, (moment, moment))
        assert lasting(json.loads(run(*command, "-o", tmp_path / "b")[1])) == first
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        assert lasting(json.loads(run(*command, "-o", tmp_path / "c")[1])) == first
        monkeypatch.undo()
        monkeypatch.setenv("LAYERSCOUT_CACHE", str(cache))


def test_no_name_leaves_its_folder(tiny, reviews, run, tmp_path):
    from layerscout.studies import report

    evil = "../../../evil/\\..\\x\0\n"[:-2]
    rows = reviews.read_text().replace(",good", ',"../../good"').replace(",bad", ',"/etc/bad"')
    data = tmp_path / "data" / "reviews.csv"
    data.parent.mkdir()
    data.write_text(rows)
    wanted = recipe(
        tiny,
        data,
        axes={"plan": {evil: "top:1"}, "task": [{"data": str(data), "name": evil}]},
        tables=[{"title": evil, "rows": "plan", "columns": "task"}],
        figures=[{"title": evil, "x": "plan", "kind": "points"}],
    )
    study(wanted, tmp_path / "out" / "study", progress=False)
    report(tmp_path / "out" / "study", figures="svg")
    code, _, _ = run("tune", tiny, data, "--plan", "top:1", "--epochs", 1, "-o", tmp_path / "tuned")
    assert code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "data", "out", "tuned"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"study"}


# Calls that are safe with this argument alone; None for never.
CALLS = {
    "torch.load": ("weights_only", "True"),
    "YAML": ("typ", "'safe'"),
    "os.system": None,
    "os.popen": None,
}


def test_yaml_makes_no_objects():
    with pytest.raises(InputError, match="could not determine a constructor"):
        read_yaml("!!python/object/apply:os.getcwd []")


@cache
def nodes_of(room):
    """Return (path, node) of all that the modules of a room are written of."""
    paths = sorted((SOURCE / room).glob("*.py"))
    return [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text()))]


ROOMS = sorted({str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")})


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_does_what_is_unsafe(room):
    for path, node in nodes_of(room):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            names = {f"{module}.{alias.name}".strip(".") for alias in node.names}
            names -= {"pickle.UnpicklingError"}  # which torch's safe loader raises
            roots = {name.partition(".")[0] for name in names}
            unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "subprocess"}
            assert not roots & unsafe, path
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), path
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert options.get("trust_remote_code", "False") == "False", path
            assert options.get("allow_pickle", "False") == "False", path
            assert options.get("shell", "False") == "False", path
            call = ast.unparse(node.func)
            if call in CALLS:
                needed = CALLS[call]
                assert needed is not None and options.get(needed[0]) == needed[1], (path, call)


# What Python has on some systems only.
SOME_SYSTEMS = {"fcntl", "grp", "msvcrt", "posix", "pwd", "resource", "termios", "tty", "winreg"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_needs_one_system(room):
    for path, node in nodes_of(room):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            assert not SOME_SYSTEMS & set(names), path
        # Elsewhere files are not UTF-8 unless one says so.
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            call = getattr(node.func, "attr", getattr(node.func, "id", ""))
            values = (*node.args, *(keyword.value for keyword in node.keywords))
            options = {ast.unparse(value) for value in values}
            if call == "open" and ast.unparse(node.func) != "Snapshots.open":
                assert {"'rb'", "'wb'", "'r+b'", "'utf-8'"} & options, (path.name, node.lineno)
            if call in ("read_text", "write_text"):
                assert any("utf-8" in option for option in options), (path.name, node.lineno)


@given(title=st.text(max_size=20) | st.text("ab #", min_size=50, max_size=80))
def test_a_title_becomes_a_name_that_any_system_takes(title):
    name = reports._slug(title)
    assert len(name) <= 60 and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
