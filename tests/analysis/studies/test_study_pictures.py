"""The figures of a markdown report are files beside it, and nothing of a user's is replaced."""

import os
import re
import shutil
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import plotly.graph_objects as go
import pytest

from tests.conftest import run_tracer
from tests.support.studies import EVIL, make_study
from tracer.analysis.page import pictures
from tracer.analysis.studies.papers.parts import parts
from tracer.probes.errors import FeatureMissing

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.browser
NAME = "x) ![y](http:evil) <b> # é"
"""The name of a report, made to end its links early."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with names of an enemy."""
    place = tmp_path_factory.mktemp("study") / "s"
    return make_study(place, model=EVIL, reported=True, paper="001")


@pytest.fixture(scope="module")
def drawn(study, tmp_path_factory):
    """The folder with a report and its figures, and the line that the verb prints."""
    folder = tmp_path_factory.mktemp("drawn")
    return folder, run_tracer("study", "report", study, "-o", f"{NAME}.md", cwd=folder).err


@needs_browser
def test_a_report_links_to_its_figures(drawn):
    folder, said = drawn
    links = re.findall(r"^!\[.*\]\((.*)\)$", (folder / f"{NAME}.md").read_text(), re.MULTILINE)
    files = sorted((folder / NAME).iterdir())
    assert sorted(folder / unquote(link) for link in links) == files
    assert f"{len(files)} figures" in said
    names = {file.name for file in files}
    assert {"figure-3.svg", "figure-3-2.svg", "figure-4.svg", "figure-6.svg"} < names
    for link in links:
        assert re.fullmatch(r"[\w.%/-]+", link, re.ASCII), link


@needs_browser
def test_names_in_a_figure_are_only_text(drawn):
    shown = ""
    for file in (drawn[0] / NAME).iterdir():
        assert file.stat().st_size < pictures.MOST_BYTES
        for element in ET.parse(file).iter():
            tag = element.tag.partition("}")[2]
            assert tag not in ("script", "a", "foreignObject", "iframe"), file
            for name, value in element.attrib.items():
                assert not name.startswith("on"), file
                if name.endswith("href"):
                    assert value.startswith(("data:image/png", "#")), file
            shown += element.text or ""
    assert EVIL in shown


@needs_browser
def test_a_second_report_replaces_only_figures_and_only_if_told(tracer, study, drawn, tmp_path):
    shutil.copytree(drawn[0] / NAME, tmp_path / "x")
    first = {file.name: file.read_bytes() for file in (tmp_path / "x").iterdir()}
    assert "x exists" in tracer("study", "report", study, "-o", "x.md", status=2).err
    (tmp_path / "x/figure-3.svg").write_text("old")
    (tmp_path / "x/figure-5-7.png").write_text("of another study")
    tracer("study", "report", study, "-o", "x.md", "--force")
    # The same study gives the same files.
    assert {file.name: file.read_bytes() for file in (tmp_path / "x").iterdir()} == first
    (tmp_path / "x/photo.png").write_text("mine")
    before = (tmp_path / "x.md").read_bytes()
    ran = tracer("study", "report", study, "-o", "x.md", "--force", status=2)
    assert "x holds other files" in ran.err
    assert (tmp_path / "x.md").read_bytes() == before


@needs_browser
@pytest.mark.parametrize("kind", ["file", "link"])
def test_figures_go_into_no_file_and_through_no_link(tracer, study, tmp_path, kind):
    (tmp_path / "there").mkdir()
    place = tmp_path / "x"
    place.write_text("mine") if kind == "file" else place.symlink_to("there")
    ran = tracer("study", "report", study, "-o", "x.md", "--force", status=2)
    assert "x is not a folder" in ran.err
    assert not any((tmp_path / "there").iterdir())
    assert not (tmp_path / "x.md").exists()


@pytest.mark.parametrize("browser", ["none", "fails", "draws nothing"])
def test_without_a_browser_the_report_has_no_figures_and_says_so(tracer, study, tmp_path, browser):
    path = tmp_path / "bin"
    path.mkdir()
    if browser != "none":
        (path / "chromium").write_text(f"#!/bin/sh\nexit {int(browser == 'fails')}\n")
        (path / "chromium").chmod(0o755)
    searched = {**os.environ, "PATH": str(path)}
    ran = tracer("study", "report", study, "-o", "x.md", env=searched)
    reason = {
        "none": "there is no Chromium", "fails": "exit status 1", "draws nothing": "drew 0 of"
    }  # fmt: skip
    assert reason[browser] in ran.err and ran.err.count("\n") == 1
    assert ("apt install chromium" in ran.err) == (browser == "none")
    text = (tmp_path / "x.md").read_text()
    assert text.startswith("# small")
    assert "**Without figures:**" in text and reason[browser] in text
    assert "](" not in text.replace("\\](", "")
    assert not (tmp_path / "x").exists()


@needs_browser
def test_a_picture_too_large_for_svg_is_a_png():
    figure = go.Figure(go.Scatter(y=[1, 3, 2], name="a"), {"height": 200, "font": {"size": 12}})
    (small,) = pictures.pictures([figure])
    (large,) = pictures.pictures([figure], most_bytes=1000)
    assert small.kind == "svg" and small.data.startswith(b"<svg ")
    assert large.kind == "png" and large.data.startswith(b"\x89PNG\r\n")


@needs_browser
def test_a_figure_that_plotly_cannot_draw_is_an_error():
    broken = go.Figure(go.Scatter(y=[1]))  # the page needs a height and a font
    with pytest.raises(FeatureMissing, match="was not drawn"):
        pictures.pictures([broken])


def test_sections_of_one_report_have_titles_of_their_own():
    titles = [part.title for part in parts(None)]
    assert len(set(titles)) == len(titles)
