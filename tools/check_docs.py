#!/usr/bin/env python3
"""Checks that the documents say what the sources say.

Links lead to a file, and to a heading of it; README.md's examples are the files under examples/ that the tests
run; docs/debugging.md names every environment variable that src/core/config.cc reads and no other.
"""

import functools
import itertools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def documents():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def without_code(document):
    return re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.S)


@functools.cache
def anchors(document):
    """What GitHub calls the headings of a document."""
    names = set()
    for heading in re.findall(r"^#+ +(.*)$", without_code(document), flags=re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)  # a link is its text
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        copies = (name if n == 0 else f"{name}-{n}" for n in itertools.count())
        names.add(next(copy for copy in copies if copy not in names))
    return names


def broken_links():
    for document in documents():
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(document)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = document.parent / name if name else document
            if not file.exists() or anchor and file.suffix == ".md" and anchor not in anchors(file):
                yield f"{document.relative_to(ROOT)}: link to {target}, which is not there"


def stale_examples():
    """A fenced block after `<!-- FILE -->` is that file, less its opening comment."""
    for document in documents():
        text = document.read_text(encoding="utf-8")
        for name, block in re.findall(r"<!-- (examples/\S+) -->\n```\w*\n(.*?)```", text, flags=re.S):
            if not (ROOT / name).is_file():
                yield f"{document.relative_to(ROOT)}: {name} is not there"
            elif block.strip() not in (ROOT / name).read_text(encoding="utf-8"):
                yield f"{document.relative_to(ROOT)}: its copy of {name} differs from the file"


def undocumented_variables():
    source = (ROOT / "src/core/config.cc").read_text(encoding="utf-8")
    text = (ROOT / "docs/debugging.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `(FA4_[A-Z_]+)`", text, flags=re.M))
    read = set(re.findall(r'"(FA4_[A-Z_]+)"', source))
    for name in sorted(read - said):
        yield f"docs/debugging.md: does not name {name}, which src/core/config.cc reads"
    for name in sorted(said - read):
        if name not in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"):
            yield f"docs/debugging.md: names {name}, which nothing reads"


def main():
    found = [*broken_links(), *stale_examples(), *undocumented_variables()]
    for line in found:
        print(line)
    print(f"check_docs: {len(documents())} documents, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
