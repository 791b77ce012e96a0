"""What is built of the kit runs where nothing else is installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rsmq_conformance import __version__

KIT = Path(__file__).parents[2] / "conformance"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, KIT],
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_the_package_with_its_scenarios_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(f"rsmq_conformance-{__version__}.dist-info/METADATA").decode()

    package = KIT / "src"
    assert names == {
        str(path.relative_to(package))
        for path in (package / "rsmq_conformance").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "Requires-Dist: redis" not in metadata
    assert sum(name.endswith(".json") for name in names) == 4


def test_installed_command_plays_the_reference_in_an_environment_of_its_own(
    wheel, tmp_path, kit_url
):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    installed = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)  # all that an installer does with a pure wheel, but scripts
    played = subprocess.run(
        [
            *(python, "-m", "rsmq_conformance", "--redis-url", kit_url, "--level", "L1"),
            *("--driver", f"{python} -m rsmq_conformance.reference", "--out", tmp_path / "report"),
        ],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert played.returncode == 0, played.stderr
    assert "reference  20/20" in played.stdout
    assert (tmp_path / "report/report.md").exists()
