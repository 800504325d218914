"""Links of pages in the repository, and in the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.reference.links import outside_files, page_links, with_site_links
from tests.places import ROOT

IN_SITE = {"docs/hta.md", "docs/gpus.md", "reports/README.md", "reports/gpu/README.md", "reports/a.png", "CHANGELOG.md"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "ddp.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("page", "link", "in_site"),
    [
        ("docs/gpus.md", "[HTA](hta.md#how)", "[HTA](hta.md#how)"),
        ("docs/gpus.md", "[results](../reports/gpu/README.md)", "[results](reports/gpu/README.md)"),
        ("docs/gpus.md", "![a picture](../reports/a.png)", "![a picture](reports/a.png)"),
        ("reports/gpu/README.md", "[docs/gpus.md](../../docs/gpus.md)", "[docs/gpus.md](../../gpus.md)"),
        ("CHANGELOG.md", "([docs/gpus.md](docs/gpus.md))", "([docs/gpus.md](gpus.md))"),
        ("docs/gpus.md", "[HTA](https://hta.readthedocs.io/a.md)", "[HTA](https://hta.readthedocs.io/a.md)"),
    ],
)
def test_a_link_leads_to_where_the_file_is_in_the_site(page: str, link: str, in_site: str, repository: Path) -> None:
    assert with_site_links(link, page, IN_SITE, repository) == in_site


def test_a_link_to_a_file_that_the_site_lacks_becomes_its_text(repository: Path) -> None:
    assert with_site_links("run [ddp.py](../probes/ddp.py)", "docs/gpus.md", IN_SITE, repository) == "run ddp.py"


def test_a_link_to_nothing_stays_so_that_the_build_fails(repository: Path) -> None:
    assert with_site_links("[gone](gone.md)", "docs/gpus.md", IN_SITE, repository) == "[gone](gone.md)"


def test_links_of_a_page_are_those_to_files() -> None:
    text = "[a](a.md#b), ![c](../c.png), [d](https://d.org), [e](#e), [f](mailto:f@f.org)"

    assert page_links(text) == [("a.md", "#b"), ("../c.png", "")]


def test_documents_from_other_folders_exist() -> None:
    paths = outside_files(ROOT)

    assert "reports/ddp/terminal.txt" in paths
    assert {path for path in paths if not (ROOT / path).is_file()} == set()
    assert not [path for path in paths if path.endswith(".py")]
