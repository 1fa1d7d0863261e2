"""Every link of the built site leads somewhere, and no page loads anything from elsewhere.

python docs/site/check_links.py site

Links within the site are followed to their file and anchor. Links to other sites are only read, not followed: a build
must not fail because a server elsewhere is down. SITE_URL, if the site was built with one, says where its root is.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LEADS = {"a": "href", "area": "href", "iframe": "src"}
LOADS = {"link": "href", "script": "src", "img": "src", "source": "src", "video": "src", "audio": "src"}
# The address of a page and of its neighbours, which browsers do not load.
NAMES = {"canonical", "prev", "next", "alternate", "license"}


class Link(NamedTuple):
    """One link of a page."""

    target: str
    loaded: bool  # by a browser, without being asked


class Html(HTMLParser):
    """A page: its links, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[Link] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if (attribute := LEADS.get(tag)) in given:
            self.links.append(Link(given[attribute], loaded=False))
        if (attribute := LOADS.get(tag)) in given:
            self.links.append(Link(given[attribute], loaded=given.get("rel") not in NAMES))


def read(page: Path) -> Html:
    """The links and anchors of a page."""
    html = Html()
    html.feed(page.read_text(encoding="utf-8"))
    return html


def broken(site: Path, pages: dict[Path, Html]) -> Iterator[str]:
    """What is wrong with the links of these pages, a line each."""
    for path, page in pages.items():
        for link in page.links:
            if wrong := _wrong(link, path, site, pages):
                yield f"{path.relative_to(site)}: {link.target}: {wrong}"


def _wrong(link: Link, page: Path, site: Path, pages: dict[Path, Html]) -> str:
    parts = urlsplit(link.target)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        if link.loaded:
            return "is loaded from elsewhere"
        well_formed = bool(parts.netloc) if parts.scheme in ("http", "https") else parts.scheme == "mailto"
        return "" if well_formed else "is no address"
    path = unquote(parts.path)
    if path.startswith("/"):  # on the page that is shown where a page is missing
        target = site / path.removeprefix(urlsplit(os.environ.get("SITE_URL", "")).path).lstrip("/")
    else:
        target = (page.parent / path).resolve() if path else page
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "there is no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors | {"__top"}:
        return "the page has no such anchor"
    return ""


def main(arguments: Iterable[str]) -> int:
    """Checks the site in a folder, and says how many links there were; 1 if any is broken."""
    site = Path(next(iter(arguments), "site")).resolve()
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        print(f"{site} has no pages: build the site first, with make docs", file=sys.stderr)
        return 1
    found = list(broken(site, pages))
    print("\n".join(found), end="\n" if found else "")
    kinds = Counter("other sites" if urlsplit(x.target).netloc else "the site" for p in pages.values() for x in p.links)
    print(f"{len(pages)} pages, {kinds['the site']:,} links within the site, {kinds['other sites']:,} to others: "
          f"{len(found)} broken")  # fmt: skip
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
