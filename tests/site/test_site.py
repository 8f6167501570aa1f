# SPDX-License-Identifier: Apache-2.0
"""The site builds without a warning; all that is built leads somewhere, asks no other host for anything, and has the whole reference."""
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "scripts" / "site"))

import header  # noqa: E402
import reference  # noqa: E402

PYTHON = pathlib.Path(os.environ.get("POSEIDON_SITE_PYTHON", ROOT / ".venv-site" / "bin" / "python3"))
PAGES = {"poseidon": "core"}  # of the reference, where a module's is not called as the module is
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("image", "href"), ("use", "href")}
LOADING = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch"}  # kinds of <link>


class Page(html.parser.HTMLParser):
    """What a page of the site has: its anchors, its links, and what a browser loads for it."""

    def __init__(self, file):
        super().__init__()
        self.anchors, self.links, self.loads, self.classes, self.text = set(), [], [], set(), file.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        self.classes |= set((found.get("class") or "").split())
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and set((found.get("rel") or "").split()) & LOADING:
            self.loads.append(found["href"])
        self.loads += [found[name] for kind, name in LOADED if kind == tag and found.get(name)]
        self.loads += re.findall(r"url\(([^)]*)\)", found.get("style") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site, and its pages by their path in it."""
    if not PYTHON.exists():
        assert not os.environ.get("CI"), f"{PYTHON} is not there, expected what scripts/setup.sh installs"
        pytest.skip("MkDocs is not installed (.venv-site)")
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run([PYTHON, "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", folder], cwd=ROOT, capture_output=True, text=True,
                         env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert run.returncode == 0, run.stderr
    return folder, {file.relative_to(folder).as_posix(): Page(file) for file in folder.rglob("*.html")}


def test_links_lead_somewhere(site):
    folder, pages = site
    assert len(pages) > 100
    lost = []
    for name, page in pages.items():
        for link in [*page.links, *page.loads]:
            there = urllib.parse.urlsplit(link)
            if there.scheme or there.netloc or link == "/":
                continue
            # 404.html is served in the place of any page, and so has absolute links.
            start = folder if there.path.startswith("/") else (folder / name).parent
            file = (start / urllib.parse.unquote(there.path).lstrip("/")).resolve() if there.path else folder / name
            target = pages.get(file.relative_to(folder).as_posix()) if file.is_relative_to(folder) else None
            if not file.is_file() or there.fragment and target and urllib.parse.unquote(there.fragment) not in target.anchors | {"__toc"}:
                lost.append((name, link))
    assert lost == []


def test_nothing_is_loaded_from_another_host(site):
    folder, pages = site
    foreign = [(name, link) for name, page in pages.items() for link in page.loads if re.match(r"\w+:|//", link) and not link.startswith("data:")]
    for file in [*folder.rglob("*.css"), *folder.rglob("*.svg")]:
        found = re.findall(r"""url\(["']?((?:https?:)?//[^)]*)|@import ["']?(\S*)|<(?:image|use|script)[^>]*href=["'](https?:[^"']*)""", file.read_text())
        foreign += [(file.name, link) for link in found]
    assert foreign == []
    # The theme's script loads these two from elsewhere, on pages that have a diagram or a repository.
    assert [name for name, page in pages.items() if page.classes & {"mermaid", "md-source__repository"}] == []


def test_the_reference_of_python_is_whole(site):
    _, pages = site
    for module in reference.MODULES:
        page = pages[f"reference/{PAGES.get(module, module.split('.')[-1])}.html"]
        names = [name for _, group in reference.groups(module) for name in group]
        assert {name.split(".")[-1] for name in names} == set(reference.names(module))
        names += [f"{name}.{member}" for name in names for member in reference.INTERFACE.get(name, ())]
        for name in names:
            heading = re.search(rf'<h\d id="{re.escape(name)}".*?(?=<h\d id=|</article>)', page.text, re.DOTALL)
            assert heading, f"{name} is not in the reference"
            assert re.search(r"<p>\w|<p><code>", heading[0]), f"{name} has no docstring"


def test_the_reference_of_c_is_whole(site):
    _, pages = site
    declared = {name for part in header.PARTS
                for name in re.findall(r"^POSEIDON_API [^;(]*?(\w+)\(|^typedef struct (\w+) \{", (ROOT / "poseidon" / "c" / part).read_text(), re.MULTILINE)
                for name in name if name} | {"poseidon_new", "poseidon_never"}  # macros, by their anchors
    assert len(declared) > 60
    assert declared - pages["reference/c.html"].anchors == set()


def test_what_pages_include_is_included(site):
    _, pages = site
    assert [name for name, page in pages.items() if "<!-- included -->" in page.text] == []
    [readme] = re.findall(r"(?ms)^## Install\n.*?```sh\n(.*?)```", (ROOT / "README.md").read_text())[:1]
    shown = re.sub(r"<[^>]*>", "", pages["install.html"].text)
    assert all(line.split("  ")[0].replace("&", "&amp;") in shown for line in readme.splitlines())
