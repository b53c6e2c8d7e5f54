"""What MkDocs does beyond Markdown for our site: root documents as pages, scripts, executed notebooks.

Nothing is kept twice. README.md, CONTRIBUTING.md and the like are read where they are, and links that lead out of
`docs/` on a code host lead to the same content on the site.
"""

from __future__ import annotations

import base64
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
EXAMPLES = "examples.md"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".csv": "text"}


def root_documents() -> dict[str, Path]:
    """The pages made of documents in the root, by their name on the site: `contributing.md` is CONTRIBUTING.md."""
    return {path.name.lower().replace("_", "-"): path for path in sorted(ROOT.glob("*.md"))}


def scripts() -> list[Path]:
    """What stands in examples/."""
    return sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in LANGUAGES)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the files outside docs/ that documents link to."""
    for name, path in root_documents().items():
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    files.append(File.generated(config, EXAMPLES, content=page_of_scripts()))
    for notebook in sorted((ROOT / "docs").glob("notebooks/*.ipynb")):
        markdown, pictures = executed(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=markdown))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    for path in linked_outside(files):
        if files.get_file_from_path(path) is None:
            files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links as a code host understands them into links of the site."""
    place = origin(page.file.src_uri)
    return outside_code(markdown, lambda text: LINK.sub(lambda link: f"]({link_of_the_site(link[1], place)})", text))


def origin(page: str) -> str:
    """Where the text of a page stands in the repository; links are relative to it."""
    document = root_documents().get(page)
    return document.name if document else page if page == EXAMPLES else f"docs/{page}"


def link_of_the_site(target: str, place: str) -> str:
    """A link in the document at `place`, as one between pages of the site."""
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"\w+:", target):
        return target
    found = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    page = place.removeprefix("docs/") if place.startswith("docs/") else place.lower()
    goal = found.removeprefix("docs/")
    if found in {document.name for document in root_documents().values()}:
        goal = found.lower().replace("_", "-")
    elif found == "examples" or found in {f"examples/{script.name}" for script in scripts()}:
        goal, mark, anchor = EXAMPLES, "#", anchor or anchor_of(posixpath.basename(found))
    elif found.startswith("docs/notebooks/") and found.endswith(".ipynb"):
        goal = goal.removesuffix(".ipynb") + ".md"
    return posixpath.relpath(goal, posixpath.dirname(page) or ".") + mark + anchor


def linked_outside(files: Files) -> set[str]:
    """Files outside docs/ and not pages themselves to which a document links, such as LICENSE."""
    found = set()
    for file in files.documentation_pages():
        place = origin(file.src_uri)
        for text in FENCE.split(file.content_string):
            for target in LINK.findall(text):
                path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target.partition("#")[0]))
                outside = not path.startswith(("docs/", "..", "examples")) and path not in root_names()
                if ":" not in target and outside and (ROOT / path).is_file():
                    found.add(path)
    return found


def root_names() -> set[str]:
    """The names of the documents in the root as they are written there."""
    return {path.name for path in root_documents().values()}


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The text with everything but fenced blocks changed."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def anchor_of(name: str) -> str:
    """The anchor of a script's heading; the page's own title for the folder."""
    return re.sub(r"[^\w\-]", "", name.lower())


def page_of_scripts() -> str:
    """All of examples/ on one page."""
    parts = ["# Examples\n\nShort scripts that run, and files that other pages use, all in the folder `examples`."]
    for script in scripts():
        text = script.read_text(encoding="utf-8").rstrip()
        parts.append(f"## {script.name}\n\n```{LANGUAGES[script.suffix]}\n{text}\n```")
    return "\n\n".join(parts) + "\n"


# -- notebooks -----------------------------------------------------------------------------------------------------


@cache
def executed(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook run from the first cell to the last in an empty folder: its Markdown, and its pictures by name."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    book = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as line:
        # Between us and the kernel: a socket file where the system has such, so that nobody else can listen.
        sockets = {} if os.name == "nt" else {"transport": "ipc", "connection_file": f"{line}/kernel.json"}
        client = NotebookClient(
            book,
            resources={"metadata": {"path": scratch}},
            kernel_name="python3",
            startup_timeout=600,
            config=Config({"KernelManager": sockets}),
        )
        client.execute()
    parts, pictures = [], {}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in joined(cell.outputs):
            name = f"{notebook.stem}-{len(pictures) + 1}.png"
            parts += list(shown(output, name, pictures))
    source = f"*This page is a notebook, run when the site was built: [{notebook.name}]({notebook.name}).*"
    title, _, rest = "\n\n".join(parts).partition("\n")
    # The link to the notebook itself is HTML: as Markdown it would lead back to this page.
    source = source.replace(f"[{notebook.name}]({notebook.name})", f'<a href="{notebook.name}">{notebook.name}</a>')
    return f"{title}\n\n{source}\n{rest}\n", pictures


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs of a cell, with what was printed piece by piece as one."""
    result: list[Any] = []
    for output in outputs:
        if result and output.output_type == result[-1].output_type == "stream":
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def shown(output: Any, name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """One output of a cell as Markdown; a picture is put into `pictures`."""
    data = output.get("data", {})
    if output.output_type == "stream":
        yield f"```text\n{output.text.rstrip()}\n```"
    elif "image/png" in data:
        pictures[name] = base64.b64decode(data["image/png"])
        yield f"![What the cell above draws]({name})"
    elif "text/html" in data:
        # Without pandas' own looks, a table looks like every other of the site.
        plain = re.sub(r"<style.*?</style>|(?<=<table)[^>]*|(?<=<tr)[^>]*", "", data["text/html"], flags=re.DOTALL)
        yield f'<div class="output" markdown="0">\n{plain}\n</div>'
    elif "text/plain" in data:
        yield f"```text\n{data['text/plain'].rstrip()}\n```"
