# SPDX-License-Identifier: Apache-2.0
"""The C header as a page of Markdown: its sections, its declarations, and the comments above them."""
import re

PARTS = ("job.h", "step.h", "place.h", "observation.h")  # in the order of a program's life
GUARD = re.compile(r'#if(n?def .*| !?defined.*)|#endif.*|#else|#include .*|#define POSEIDON_(C_\w+_H_|API .*)|extern "C" \{|\}  // extern "C"')


def comment(lines):
    """Paragraphs and indented blocks of a // comment."""
    texts = [re.sub(r"^//( |$)", "", line) for line in lines]
    paragraphs, block = [], []
    for text in [*texts, ""]:
        if text.startswith("  ") or block and text.startswith(" "):
            block.append(text[2:])
            continue
        if block:
            paragraphs.append("```text\n" + "\n".join(block) + "\n```")
            block = []
        if text and paragraphs and not paragraphs[-1].startswith("```") and paragraphs[-1]:
            paragraphs[-1] += "\n" + text
        else:
            paragraphs.append(text)
    return "\n\n".join(words(each) for each in paragraphs if each)


def words(paragraph):
    if paragraph.startswith("```"):
        return paragraph
    escaped = re.sub(r"([<>*\[\]])", r"\\\1", paragraph)
    return re.sub(r"(?<![\w/])((?:poseidon|POSEIDON)_\w+(?:\.\w+)*)", r"`\1`", escaped)


def declarations(text):
    """Chunks of the header's text: ("section", title, ""), or ("declaration", comment lines, code)."""
    found, above, code, depth, skipped = [], [], [], 0, False
    for line in text.splitlines():
        if line.startswith("#ifdef __cplusplus"):
            skipped = True
        if skipped:  # what C++ alone sees; a comment there is of what C has instead
            skipped = not line.startswith(("#else", "#endif"))
            above += [line] if line.startswith("//") else []
            continue
        if not code and (GUARD.fullmatch(line.strip()) or "NOLINT" in line or "SPDX" in line):
            above = []
            continue
        if not code and line.startswith("// ---- "):
            found.append(("section", line.removeprefix("// ---- ").rstrip(), ""))
        elif not code and line.startswith("//"):
            above.append(line)
        elif not code and not line.strip():
            if above:
                found.append(("text", above, ""))
            above = []
        else:
            code.append(line)
            bare = re.sub(r"//.*", "", line)
            depth += bare.count("{") + bare.count("(") - bare.count("}") - bare.count(")")
            if depth == 0 and (bare.rstrip().endswith(";") or line.startswith("#define") and not line.endswith("\\")):
                found.append(("declaration", above, "\n".join(code)))
                above, code = [], []
    return found


def name_of(code):
    """What a declaration is called."""
    flat = re.sub(r"//.*", "", code)
    if flat.startswith("#define"):
        return flat.split()[1].partition("(")[0]
    if match := re.search(r"\}\s*(\w+);\s*$", flat) or re.match(r"typedef .*?(\w+);", flat):
        return match[1]
    if flat.startswith("enum"):
        return None
    return re.search(r"(\w+)\(", flat)[1]


def page(folder):
    """The reference of the headers in `folder`, from the second level of headings on."""
    texts = {name: (folder / name).read_text() for name in ("poseidon.h", *PARTS)}
    out = []
    preface = [lines for kind, lines, _ in declarations(texts["poseidon.h"]) if kind == "text"]
    out += [comment(lines) for lines in preface]
    for part in PARTS:
        out.append(f"## {part}")
        for kind, above, code in declarations(texts[part]):
            if kind == "section":
                title, _, more = above.partition(":")
                out.append(f"### {title[0].upper() + title[1:]}")
                out += [words(more.strip())] if more else []
                continue
            name = name_of(code) if code else None
            out += [f"#### {name}"] if name else []
            out += [comment(above)] if above else []
            out += [f"```c\n{code.replace('POSEIDON_API ', '')}\n```"] if code else []
    return "\n\n".join(out) + "\n"
