"""Builds the documentation as a static site in `build/docs-site`, which works without a network and without a server.

`make docs-site` runs it. The pages are README.md, CHANGELOG.md, CONTRIBUTING.md, docs/, and all files that they link,
under the paths of the repository. Zensical renders them; `--strict` fails on a broken link or anchor. Two scripts come
from npm: Mermaid draws the diagrams, and a worker makes the search work at `file:` addresses. Without npm the diagrams
are shown as code, and the search needs a server (`python -m http.server -d build/docs-site`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from documents import README, ROOT, first_pages, linked_files, sections, title

SITE = ROOT / "build" / "docs-site"
WORK = ROOT / ".cache" / "docs-site"
SCRIPTS = {"mermaid": ("12.3.0", "package/dist/mermaid.min.js"), "iframe-worker": ("1.0.4", "package/shim/index.js")}
"""Packages of npm with the version and the file that the site contains."""
FETCH_S = 300


def copy_sources(files: Iterable[Path], target: Path) -> None:
    """Copy the files into `target` under their paths in the repository."""
    for file in files:
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def fetch_script(package: str, target: Path) -> bool:
    """Extract the script of a package from npm into `target`; whether it is there."""
    version, member = SCRIPTS[package]
    kept = WORK / f"{package}-{version}.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            return False
        command = ["npm", "pack", "--silent", f"{package}@{version}"]
        if subprocess.run(command, cwd=WORK, stdout=subprocess.DEVNULL, timeout=FETCH_S, check=False).returncode != 0:
            return False
        archive = WORK / f"{package}-{version}.tgz"
        with tarfile.open(archive) as packed:
            script = packed.extractfile(member)
            assert script is not None
            kept.write_bytes(script.read())
        archive.unlink()
    shutil.copyfile(kept, target / f"{package}.js")
    return True


def navigation(pages: Iterable[Path]) -> list[dict[str, Any]]:
    """The menu: the sections with the titles of their pages."""
    menu: list[dict[str, Any]] = [{"Ottla": "README.md"}]
    for name, entries in sections(pages).items():
        menu.append({name: [{title(page): str(page.relative_to(ROOT))} for page in entries]})
    return menu


def configuration(pages: Iterable[Path], scripts: set[str]) -> dict[str, Any]:
    """The settings of Zensical."""
    palettes = [
        ("(prefers-color-scheme: light)", "default", "slate"),
        ("(prefers-color-scheme: dark)", "slate", "default"),
    ]
    toggle = {"default": "lucide/sun", "slate": "lucide/moon"}
    fence = {"name": "mermaid", "class": "mermaid"}
    return {
        "site_name": "Ottla",
        "docs_dir": "source",
        "site_dir": "site",
        "nav": navigation(pages),
        "theme": {
            "font": False,
            "features": ["navigation.indexes", "navigation.top", "content.code.copy", "search.highlight", "toc.follow"],
            "palette": [
                {"media": media, "scheme": scheme, "toggle": {"icon": toggle[scheme], "name": f"Change to {other}"}}
                for media, scheme, other in palettes
            ],
        },
        "plugins": ["search", "offline"],
        "extra": {"polyfills": ["assets/iframe-worker.js"] if "iframe-worker" in scripts else []},
        "extra_javascript": ["assets/mermaid.js"] if "mermaid" in scripts else [],
        "markdown_extensions": [
            {"toc": {"permalink": True, "slugify": {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}}},
            "tables",
            "md_in_html",
            "pymdownx.highlight",
            {"pymdownx.superfences": {"custom_fences": [fence] if "mermaid" in scripts else []}},
        ],
    }


def main() -> int:
    """Build the site. Returns the exit code of Zensical."""
    source = WORK / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    files = linked_files(first_pages())
    copy_sources(files, source)
    (source / "assets").mkdir()
    scripts = {package for package in SCRIPTS if fetch_script(package, source / "assets")}
    if missing := SCRIPTS.keys() - scripts:
        print(f"Without npm the site lacks {', '.join(sorted(missing))}: diagrams are code or search needs a server")
    pages = [path for path in files if path.suffix == ".md" and path != README]
    settings = WORK / "mkdocs.yml"  # JSON is YAML
    settings.write_text(json.dumps(configuration(pages, scripts), indent=1), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(settings)]
    code = subprocess.run(command, cwd=WORK, check=False).returncode
    if code == 0:
        SITE.parent.mkdir(exist_ok=True)
        shutil.move(WORK / "site", SITE)
        print(f"The site is {SITE / 'index.html'}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
