# SPDX-License-Identifier: Apache-2.0
"""The hooks that MkDocs calls (mkdocs.yml), so that the pages of the tree are the pages of the site.

Pages keep their paths in the tree (docs/torch.md, README.md), so a link that is right in the tree is right in the site. What a page links to
outside of docs, a script or a folder of examples, becomes a page that shows it. In the site a paragraph `[words](target)<!-- included -->` is
replaced by its target: a section of a page, the docstrings of a Python module, or the comments of the C header.
"""
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import header  # noqa: E402
import reference  # noqa: E402

ROOT = reference.ROOT
FENCED = re.compile(r"(?ms)^( *```+)[^\n]*\n.*?^\1 *$")
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
INCLUDED = re.compile(r"(?m)^\[[^\]\n]*\]\(([^()\s]+)\)<!-- included -->$")
LANGUAGES = {".py": "python", ".sh": "bash", ".c": "c", ".cc": "cpp", ".h": "cpp", ".hpp": "cpp", ".cff": "yaml", ".json": "json", ".yml": "yaml"}
PLACES = {"README.md": "readme.html", "README.zh.md": "zh.html", "SECURITY.md": "reporting.html"}  # of pages that are neither in docs nor below source/
STYLE = "scripts/site/style.css"


class Source(File):
    """A file of the tree that is no page, shown as one."""

    def is_documentation_page(self):
        return True


def outside_code(text, change):
    """`text` with `change` applied to what is between its blocks of code."""
    parts, last = [], 0
    for block in FENCED.finditer(text):
        parts += [change(text[last:block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, change(text[last:])])


def linked(uri, text):
    """The files of the tree that a page links to, as paths in the tree."""
    found = set()

    def look(part):
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", part)):
            target = match[2].partition("#")[0]
            if target and ":" not in target:
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(uri), target)))
        return part
    outside_code(text, look)
    return found


def shown(uri):
    """A page in the place of a file or a folder that is none."""
    path = ROOT / uri
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    if path.is_dir():
        text = "\n".join(f"- [{each.name}]({path.name}/{each.name})" for each in sorted(path.iterdir()) if shows(each))
        readme = path / "README.md"
        if readme.exists():
            return LINK.sub(lambda link: link[1] + moved(link[2], f"{uri}/README.md", uri) + link[3], readme.read_text()) + f"\n## Files\n\n{text}\n"
        return hidden + f"# {uri}\n\n{text}\n"
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", path.read_text()))])
    return hidden + f"# {uri}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}{fence}\n"


def shows(path):
    return path.is_file() and path.suffix in {".py", ".c", ".cc", ".prototxt", ".txt", ".cff", ".sh"} and path.name != "CMakeLists.txt"


def moved(target, of, to):
    """A relative link of page `of`, as page `to` has to say it."""
    path, mark, anchor = target.partition("#")
    if ":" in path:
        return target
    there = posixpath.normpath(posixpath.join(posixpath.dirname(of), path)) if path else of
    return posixpath.relpath(there, posixpath.dirname(to) or ".") + mark + anchor


def on_files(files, config):
    kept = [file for file in files if not str(file.src_dir or "").startswith(config.docs_dir)]
    waiting = sorted({*(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])})
    found = {}
    while waiting:
        uri = waiting.pop()
        path = ROOT / uri
        if uri in found or not path.exists():  # MkDocs says what is not there
            continue
        name = uri.removeprefix("docs/")
        page = path.suffix == ".md" and (uri.startswith("docs/") or "/" not in uri)
        if page:
            place = PLACES.get(uri, name.removesuffix(".md").lower() + ".html") if "/" not in uri else name.removesuffix(".md") + ".html"
            file = File(uri, str(ROOT), config.site_dir, False, dest_uri=place.replace("README.html", "index.html"))
            text = file.content_string
        elif path.suffix == ".svg":
            file, text = File(uri, str(ROOT), config.site_dir, False, dest_uri=name), ""
        else:
            file = Source.generated(config, uri, content=shown(uri), inclusion=InclusionLevel.NOT_IN_NAV)
            file.dest_uri, text = f"source/{uri}.html", file.content_string
        if file.dest_uri in {other.dest_uri for other in found.values()}:
            raise ValueError(f"{uri} would be {file.dest_uri}, which another page is; expected a place of its own in PLACES")
        found[uri] = file
        waiting += linked(uri, INCLUDED.sub("", text))
    style = File(STYLE, str(ROOT), config.site_dir, False, dest_uri="style.css")
    return Files([*kept, *found.values(), style])


def section(uri, anchor):
    """The text of a page below one of its headings, whose links are those of that page."""
    text, level, taken = (ROOT / uri).read_text(), 0, []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        heading = None if fenced else re.match(r"(#+) (.*)$", line)
        if heading and level and len(heading[1]) <= level:
            break
        if level:
            taken.append(line)
        elif heading and re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-") == anchor:
            level = len(heading[1])
    if not taken:
        raise ValueError(f"{uri} has no section {anchor}, expected one since a page includes it")
    return "\n".join(taken).strip()


def documented(module):
    """Directives of mkdocstrings for all that a module exports."""
    def directive(name, level, members):
        return f"::: {name}\n    options:\n      heading_level: {level}\n      members: {list(members) or 'false'}\n"
    alone = f"::: {module}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n      members: false\n"
    parts = [alone]
    for title, names in reference.groups(module):
        parts += [f"## {title}\n"] if title else []
        parts += [directive(name, 3 if title else 2, reference.INTERFACE.get(name, ())) for name in names]
    return "\n".join(parts)


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri

    def included(match):
        path, _, anchor = match[1].partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(uri), path))
        if anchor:
            return outside_code(section(there, anchor), lambda part: LINK.sub(lambda link: link[1] + moved(link[2], there, uri) + link[3], part))
        if there.endswith(".h"):
            return header.page((ROOT / there).parent)
        return documented(there.removeprefix("frontends/python/").removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    return INCLUDED.sub(included, markdown)
