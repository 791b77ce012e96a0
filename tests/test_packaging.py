"""What is built is what is needed."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the source distribution, and with the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        text=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    """What a package index reads; it refuses fields that are not valid, and so does this."""
    (name,) = [n for n in wheel.namelist() if n.endswith("METADATA")]
    return Metadata.from_email(wheel.read(name), validate=True)


def tracked() -> list[str]:
    if shutil.which("git") is None:
        return []
    shown = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [file for file in shown.stdout.split("\0") if file]


@pytest.mark.skipif(not tracked(), reason="compares with the files that git tracks")
def test_source_distribution_holds_what_is_tracked_and_nothing_else(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert names == {f for f in tracked() if not f.startswith(".ci/")} | {"PKG-INFO"}


def test_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "aiorsmq_ng").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name for name in wheel.namelist() if name.startswith("aiorsmq_ng/")} == package
    assert {"aiorsmq_ng/py.typed", "aiorsmq_ng/rpc/v1.proto"} <= package
    assert sum(name.endswith(".lua") for name in package) > 10


def test_wheel_holds_the_package_and_what_spark_looks_for_only(wheel):
    top = {name.split("/")[0] for name in wheel.namelist()}

    assert {t for t in top if not t.endswith(".dist-info")} == {"aiorsmq_ng", "pyspark_rsmq.py"}


def test_wheel_holds_what_tests_of_users_need_and_not_our_laboratory(wheel):
    shipped = {name for name in wheel.namelist() if name.startswith("aiorsmq_ng/testing/")}

    assert {name.rpartition("/")[2] for name in shipped} == {
        *("__init__.py", "temporary_clients.py", "clock.py", "fault_proxy.py", "intercepts.py"),
        *("plugin.py", "pytest_asyncio_fixtures.py", "resp_splitter.py", "servers.py"),
    }


def test_core_depends_on_little(metadata):
    required = [r for r in metadata.requires_dist or [] if "extra" not in str(r.marker)]

    assert sorted(r.name for r in required) == ["anyio", "msgspec", "redis"]


def test_metadata_are_those_of_the_project(metadata):
    assert (metadata.name, metadata.license_expression) == ("aiorsmq-ng", "MIT")
    assert metadata.description_content_type == "text/markdown"
    assert {"Homepage", "Documentation", "Changelog", "Issues"} == set(metadata.project_urls or {})


def test_every_extra_that_a_page_names_exists(metadata):
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    text = "".join(page.read_text() for page in pages)
    installed = re.findall(r"(?:aiorsmq-ng|\B\.)\[([a-z,]+)\]", text)
    spoken = re.findall(r"\bextra `(\w+)`", text)
    named = {extra for found in (*installed, *spoken) for extra in found.split(",")}

    assert len(named) > 4
    assert named <= set(metadata.provides_extra or [])


def test_no_file_records_where_packages_were_downloaded_from():
    assert not [f for f in tracked() if f.endswith((".lock", "lock.json", "lock.yaml"))]


def test_page_of_the_package_index_has_full_addresses_only(metadata):
    links = re.findall(r"\]\(([^)]+)\)", metadata.description or "")

    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
